CREATE VIEW run_overview AS
SELECT
    runs.run_id,
    json_extract(runs.spec_json, '$.name') AS name,
    runs.dataset_name AS dataset,
    runs.state,
    runs.state_message,
    runs.total_count,
    runs.finished_count,
    runs.passed_count,
    runs.failed_count,
    runs.agent_error_count,
    runs.interrupted_count,
    CAST(runs.passed_count AS DOUBLE PRECISION) / NULLIF(runs.passed_count + runs.failed_count, 0) AS pass_rate,
    runs.created_at,
    runs.started_at,
    runs.ended_at,
    runs.assay_version,
    runs.team
FROM runs;

CREATE VIEW result_rows AS
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

CREATE VIEW score_rows AS
SELECT
    results.run_id,
    results.case_id,
    results.repeat,
    results.category,
    json_extract(score.value, '$.metric') AS metric,
    CAST(json_extract(score.value, '$.value') AS DOUBLE PRECISION) AS value,
    json_extract(score.value, '$.status') AS status,
    json_extract(score.value, '$.passed') AS passed,
    coalesce(json_extract(score.value, '$.reason'), '') AS reason
FROM results, json_each(results.scores_json) AS score;
