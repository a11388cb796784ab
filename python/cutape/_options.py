"""Verbs of `cutape` as functions with all their options.

Generated from the definitions of the command line:
`UPDATE_GOLDEN=1 cargo test -p cutape python_options` writes this file.
"""

from typing import Literal, Optional, Sequence, Union

from ._recording import Block
from ._verbs import Findings, Path, ReplayReport, findings_of, report_of, words


def check(
    trace: Path,
    *,
    rules: Optional[str] = None,
    calls: Optional[str] = None,
    allow: Union[str, Sequence[str]] = (),
    suppress: Optional[Path] = None,
    baseline: Optional[Path] = None,
    write_baseline: Optional[Path] = None,
    proven: Optional[Path] = None,
    measure: bool = False,
    all: bool = False,
    expect_errors: bool = False,
    most_repeats: Optional[int] = None,
    confidence: Optional[Literal["certain", "contents", "assumed"]] = None,
    allow_incomplete: bool = False,
    junit: Optional[Path] = None,
    sarif: Optional[Path] = None,
) -> Findings:
    """Looks for misuse of the API in a trace, or in a folder of them: `cutape check`.

    Raises CommandError where the command ends with status 2 or 3.

    rules: Only findings of these rules: link-*,memory-*; `-memory-leak` or `not peer-*` leave rules
        out.
    calls: Only findings at these calls of the trace, or about objects that they created and that
        nothing destroyed.
    allow: Leave out these findings: a line of a file of --suppress, e.g. 'memory-leak
        kernel:warm_up*'. May be given several times.
    suppress: Leave out findings that this file lists.
    baseline: Leave out findings that --write-baseline or --format json wrote to FILE.
    write_baseline: Write the findings to this file, for --baseline of later runs.
    proven: Findings that `race --report` proved are errors.
    measure: Measure what the advice of findings about performance would gain, as `what-if` does:
        needs a GPU, or --driver.
    all: Print findings of every class: also probes, expected errors, teardown. They all affect the
        exit status.
    expect_errors: The program tests errors: leave out findings about calls that failed.
    most_repeats: Print at most N findings of one mistake, and count the rest. One mistake is one
        rule at one place in the program, with objects that one place created. Default: 1.
    confidence: Leave out findings that are less certain than this. Default: assumed.
    allow_incomplete: If a recording that ended early has no findings, exit with status 0 and not
        with 2.
    junit: Also write the findings to this file as JUnit XML.
    sarif: Also write the findings to this file as SARIF 2.1.0.
    """
    return findings_of(trace, words(check, locals()))


def replay(
    trace: Path,
    *,
    rank: Optional[int] = None,
    driver: Optional[Path] = None,
    calls: Optional[str] = None,
    until: Optional[int] = None,
    timing: Union[bool, Literal["calls", "span"]] = False,
    threads: bool = False,
    keep_going: bool = False,
    repeat: Optional[int] = None,
    no_launch_outputs: bool = False,
    fill: Optional[int] = None,
    replace_image: Union[str, Sequence[str]] = (),
    reissue_fatal: bool = False,
    set: Union[str, Sequence[str]] = (),
    save: Union[str, Sequence[str]] = (),
    overwrite: bool = False,
    io: Optional[Path] = None,
    sync_each: bool = False,
    allow: Union[str, Sequence[str]] = (),
    allow_incomplete: bool = False,
    junit: Optional[Path] = None,
    force: bool = False,
    devices: Union[str, Sequence[str]] = (),
    placement: Optional[Literal["natural", "granules", "none"]] = None,
    keep_placement: Optional[Path] = None,
    no_sandbox: bool = False,
    watchdog: Optional[int] = None,
    report: Optional[Path] = None,
) -> ReplayReport:
    """Re-issues the calls of a trace in another process, and compares: `cutape replay`.

    rank: Replay rank N of a folder alone, on the devices that are here.
    driver: The driver to call: a path, or `null`. Default: this machine's.
    calls: Compare only these calls, and stop after the last.
    until: Stop before the call with this index.
    timing: Measure instead of comparing bytes: each function's time in the driver, and the time
        from the first call to the last.
    threads: Run the recorded threads concurrently instead of in lockstep.
    keep_going: Count divergences instead of stopping at the first.
    repeat: Replay N times, each in a new process, to tell the causes of divergences apart. Implies
        --keep-going. Default: 1.
    no_launch_outputs: With --repeat: do not compare what launches write.
    fill: Fill new memory with this byte (0 to 255, or 0x00 to 0xff).
    replace_image: Load FILE instead of the image that call CALL loads from memory: a cubin, a
        fatbin or PTX. Can be given several times.
    reissue_fatal: Re-issue also what may crash the driver: calls that never returned in the
        recording, and uses of destroyed objects. The report names the call in which the replay
        dies.
    set: Give a copy from host memory the bytes in FILE instead of the recorded ones: 'call 57
        srcHost=FILE', or a name of --io. Can be given several times.
    save: Save the bytes that a copy writes to host memory: 'call 912 dstHost=FILE', or a name of
        --io. FILE must not exist, except with --overwrite. Can be given several times.
    overwrite: Replace the output if it exists.
    io: Names of inputs and outputs (TOML). Default: app.io.toml for app.cutape.
    sync_each: Wait for each launch, and name the one that causes an asynchronous error.
    allow: Do not count divergences with these verdicts in the exit status.
    allow_incomplete: If the replay of a recording that ended early agrees, exit with status 0 and
        not with 2.
    junit: Also write the report to this file as JUnit XML.
    force: Continue even if the machine does not fit the trace.
    devices: Map recorded devices to devices of this machine, by ordinal.
    placement: How memory comes to lie at its recorded address.
    keep_placement: Keep in FILE how memory was placed, and begin with that the next time.
    no_sandbox: Let the replay do what you may do: write any file, use the network, start programs.
    watchdog: End a replay in which no call, or iteration of bench, begins or ends for this long.
        Default: 60.
    report: Write the results to this file as JSON; - is stdout, without the text.
    """
    return report_of(trace, words(replay, locals()))


def record(
    path: Path,
    *,
    overwrite: bool = False,
    state: Optional[Literal["recorded", "replay"]] = None,
    driver: Optional[Path] = None,
    images: Optional[Literal["whole", "used"]] = None,
    force: bool = False,
    devices: Union[str, Sequence[str]] = (),
    placement: Optional[Literal["natural", "granules", "none"]] = None,
    keep_placement: Optional[Path] = None,
    no_sandbox: bool = False,
    watchdog: Optional[int] = None,
) -> Block:
    """Writes the driver calls of a block to a trace of their own, with those that they need.

    The program must have been started with `cutape record`, which records all of it: the block is
    cut out when it ends, by `cutape trim`. It has the calls of all threads.

    overwrite: Replace the output if it exists.
    state: How the part gets the memory that it reads. Default: recorded.
    driver: With --state replay: the driver, a path or `null`. Default: this machine's.
    images: Which code of images is kept. Default: whole.
    force: Continue even if the machine does not fit the trace.
    devices: Map recorded devices to devices of this machine, by ordinal.
    placement: How memory comes to lie at its recorded address.
    keep_placement: Keep in FILE how memory was placed, and begin with that the next time.
    no_sandbox: Let the replay do what you may do: write any file, use the network, start programs.
    watchdog: End a replay in which no call, or iteration of bench, begins or ends for this long.
        Default: 60.
    """
    return Block(path, words(record, locals()))
