CREATE OR REPLACE VIEW run_overview AS
SELECT
    runs.run_id,
    CAST(runs.spec_json AS json) ->> 'name' AS name,
    runs.dataset_name AS dataset,
    runs.state,
    runs.state_message,
    runs.total_count,
    runs.finished_count,
    runs.passed_count,
    runs.failed_count,
    runs.agent_error_count,
    runs.interrupted_count,
    CAST(runs.passed_count AS double precision) / NULLIF(runs.passed_count + runs.failed_count, 0) AS pass_rate,
    runs.created_at,
    runs.started_at,
    runs.ended_at,
    runs.assay_version,
    runs.team
FROM runs;

CREATE OR REPLACE VIEW result_rows AS
SELECT
    run_id,
    case_id,
    repeat,
    category,
    status,
    passed,
    latency_ms,
    message,
    tags_json,
    weight,
    case_index,
    sequence,
    created_at,
    started_at,
    duration_ms
FROM results;

CREATE OR REPLACE VIEW score_rows AS
SELECT
    results.run_id,
    results.case_id,
    results.repeat,
    results.category,
    score.item ->> 'metric' AS metric,
    CAST(score.item ->> 'value' AS double precision) AS value,
    score.item ->> 'status' AS status,
    CAST(score.item ->> 'passed' AS boolean) AS passed,
    coalesce(score.item ->> 'reason', '') AS reason
FROM results
CROSS JOIN LATERAL json_array_elements(CAST(results.scores_json AS json)) AS score (item);
