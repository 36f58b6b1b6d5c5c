"""Progress of a run: a live line on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from assay.client.progress.row_outcomes import RowOutcomes
from assay.model.run import RowResult, Run, RunState, StateChanged
from assay.reports.words.judging_text import judge_lines, judging_cost
from assay.reports.words.run_description import cases_over_dataset
from assay.specs.model import checks_of, wants_verdicts
from assay.text.screen import can_redraw, columns_of
from assay.text.unsafe_text import clean, without_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.1
_BAR_WIDTH = 24
_LEAST_SPAN_S = 0.5  # rows that arrive together do not give a rate


class StartProgress(Protocol):
    """Shows the services that are still starting."""

    def wait_for(self, services: Sequence[str]) -> None:
        """Set the services that are still starting; empty once all are ready."""

    def show_wait(self) -> None:
        """Update the time that they have been starting for."""


class Progress(StartProgress, Protocol):
    """Receives the events of a run."""

    judge_environ: Mapping[str, str] | None
    """Environment of the run's judge service, for the limit of a spend cap; None if unknown."""

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Take one snapshot or event."""

    def __enter__(self) -> Self:
        """Start showing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the final state."""


def make_progress(run: Run, *, hidden: bool, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Return the suitable progress: hidden, a live line on a terminal or in a notebook, or plain lines.

    Args:
        hidden: Whether to show nothing.
        clock: Returns the time in seconds.
    """
    if hidden:
        return _Hidden(run, clock)
    if (display := notebook_display()) is not None:
        return _Notebook(run, clock, display)
    return _Live(run, clock) if sys.stderr is not None and can_redraw(sys.stderr) else PlainProgress(run, clock)


def starting_text(services: Sequence[str]) -> str:
    """Return the text shown while services start; empty if none are starting."""
    parts = [
        "loading the embedding model" if service == "embedder" else f"starting the {service}" for service in services
    ]
    return f"{' and '.join(parts)} …" if parts else ""


class _Hidden:
    """Counts rows and shows nothing."""

    every_s = float("inf")

    def __init__(self, run: Run, clock: Callable[[], float] = time.monotonic) -> None:
        self.judge_environ: Mapping[str, str] | None = None
        self._run = run
        self._clock = clock
        self._total = run.counts.total_count
        self._rows = RowOutcomes(run.spec.repeats)
        self._judging_usd: float | None = None
        self._done_before = 0  # rows stored before the watch began
        self._begun_with = 0
        self._begun_at = self._shown_at = clock()
        self._is_stale = False  # whether a row was replaced since the line was last shown
        self._joined: Run | None = None  # state when the watch began
        self._unsaid = ""
        self._starting = ""
        self._starting_since: float | None = None
        self._unit = "rows" if run.spec.repeats > 1 else "cases"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Take one snapshot or event."""
        if self._unsaid:
            self.say(self._unsaid)
            self._unsaid = ""
        if isinstance(event, RowResult):
            is_new = self._rows.take(event)
            self._is_stale = self._is_stale or not is_new
            if is_new and self._done <= self._done_before + 1:
                # Neither the services' start-up time nor rows stored earlier count for the rate of cases.
                self._begun_at = self._shown_at = self._clock()
                self._begun_with = self._done
            if (cost := judging_cost(event)) is not None:
                self._judging_usd = (self._judging_usd or 0.0) + cost
            if self._clock() - self._shown_at >= self.every_s or (is_new and self._done == self._total):
                self._shown_at = self._clock()
                self._is_stale = False
                self.show()
        elif isinstance(event, Run):
            self._done_before = event.counts.finished_count
            self._joined = self._joined or event
        elif self._is_over(event):
            return
        elif event.state is RunState.RUNNING and event.message:
            self.say(event.message)  # the run continues, possibly for hours
        elif event.message:
            # Printed when the run continues; a run that stays paused gets its own sentence at the end.
            self._unsaid = f"{event.state.value}: {event.message}"

    def _is_over(self, change: StateChanged) -> bool:
        """Return whether the run left this state before the watch began, such as the pause of a resumed run."""
        states_before = self._joined
        return (
            states_before is not None
            and change.sequence <= states_before.last_sequence
            and (change.state, change.message) != (states_before.state, states_before.state_message)
        )

    @property
    def _done(self) -> int:
        return self._rows.done

    def wait_for(self, services: Sequence[str]) -> None:
        """Set the services that are still starting."""
        self._starting = starting_text(services)
        if self._starting_since is None:
            self._starting_since = self._clock()
        self.show_start()

    def show_start(self) -> None:
        """Show the services that the first rows wait for."""

    def show_wait(self) -> None:
        """Update the time that services have been starting for."""

    def show(self) -> None:
        """Show the progress."""

    def say(self, text: str) -> None:
        """Show a sentence."""

    def line(self) -> str:
        """Return the progress line: cases, pass rate, speed, time left; or the services that the first rows wait
        for."""
        if self._starting and self._done <= self._done_before:
            seconds = self._clock() - (self._starting_since or 0.0)
            return f"{self._done}/{self._total} {self._unit}  {self._starting} {_duration(seconds)}"
        seconds = self._clock() - self._begun_at
        rate = (self._done - self._begun_with) / seconds if seconds >= _LEAST_SPAN_S else 0.0
        decided = self._rows.passed + self._rows.failed
        passed = f"{self._rows.passed / decided:.1%} passed" if decided else "no row has a verdict"
        speed = ""
        if rate > 0:
            speed = f"  {rate:.0f} {self._unit}/s" if rate >= 10 else f"  {rate:.1f} {self._unit}/s"
        if rate > 0 and self._done < self._total:
            speed += f"  {_duration((self._total - self._done) / rate)} left"
        cost = f"  judging ${self._judging_usd:.4f}" if self._judging_usd is not None else ""
        return f"{self._done}/{self._total} {self._unit}  {passed}{speed}{cost}"

    def say_run(self) -> None:
        """Show the run, and the judge with its spend cap if a metric needs a judge."""
        self.say(f"run {self._run.run_id}: {cases_over_dataset(self._run)}")
        settings = self._run.spec
        if wants_verdicts(settings.metrics, checks_of(settings)):
            for line in judge_lines(settings, self.judge_environ):
                self.say(line)


class PlainProgress(_Hidden):
    """Occasional lines, for logs."""

    every_s = _PLAIN_EVERY_S

    def __enter__(self) -> Self:
        self.say_run()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Costs and replaced rows can change after the last line was shown.
        if self._is_stale or (self._judging_usd is not None and self._done < self._total):
            self.show()

    def show_start(self) -> None:
        if self._starting:
            self.say(self._starting)

    def show(self) -> None:
        self.say(self.line())

    def say(self, text: str) -> None:
        _write(f"{clean(text)}\n")


class _Redrawn(_Hidden):
    """A line that is redrawn in place."""

    def __enter__(self) -> Self:
        self.say_run()
        self.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show()

    def show_start(self) -> None:
        self.show()

    def show_wait(self) -> None:
        if self._starting:
            self.show()


class _Live(_Redrawn):
    """The redrawn line of a terminal."""

    every_s = _LIVE_EVERY_S

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show()
        _write("\n")

    def show(self) -> None:
        share = self._done / self._total if self._total else 1.0
        filled = round(share * _BAR_WIDTH)
        bar = "━" * filled + "╌" * (_BAR_WIDTH - filled) + " "
        line, width = self.line(), columns_of(sys.stderr) - 1  # a line as wide as the terminal would wrap
        text = bar + line if len(bar + line) <= width else line
        _write(f"\r\x1b[2K{text[:width]}")

    def say(self, text: str) -> None:
        _write(f"\r\x1b[2K{clean(text)}\n")


class _Notebook(_Redrawn):
    """The redrawn line below a notebook's cell; sentences go to stderr."""

    every_s = _PLAIN_EVERY_S / 10

    def __init__(self, run: Run, clock: Callable[[], float], display: Callable[..., Any]) -> None:
        super().__init__(run, clock)
        self._display = display
        self._handle: Any = None

    def show(self) -> None:
        shown = {"text/plain": clean(self.line())}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def say(self, text: str) -> None:
        _write(f"{clean(text)}\n")


def notebook_display() -> Callable[..., Any] | None:
    """Return the function that displays output below a notebook's cell; None elsewhere. Does not import IPython."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    if shells is None or not shells.InteractiveShell.initialized():
        return None
    if not hasattr(shells.InteractiveShell.instance(), "kernel"):
        return None  # IPython on a terminal
    from IPython.display import display

    show: Callable[..., Any] = display
    return show


def _write(text: str) -> None:
    if sys.stderr is not None:  # a process without a console has none
        sys.stderr.write(without_commands(text))
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {seconds:02d} s"
