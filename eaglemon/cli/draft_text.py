"""What the draft doctor found, as text."""

from eaglemon.cli.tables import Row, columns
from eaglemon.core.draft_verdict import DraftDiagnosis
from eaglemon.core.draft_views import (
    Captured,
    CaptureOutlook,
    CheckView,
    InspectView,
    Relabelled,
    RoundFigures,
    SearchView,
)
from eaglemon.core.units import UNKNOWN, count, length, memory, percent

_SHOWN_OTHERS = 5


def inspect_lines(view: InspectView) -> list[str]:
    """Return what a draft's files say; its problems are told apart from it."""
    rows: list[Row] = [
        ("draft", view.folder),
        ("architecture", f"{view.architecture}, {view.attention} attention, {view.layout}"),
        (
            "weights",
            f"{count(view.parameters)} values, {', '.join(view.dtypes)}"
            + (f" ({view.looked_at})" if view.looked_at else ""),
        ),
        ("hidden size", f"{_number(view.hidden_size)} (target {_number(view.target_hidden_size)})"),
        ("joins", f"{_number(view.captured)} layers of the target"),
        (
            "vocabulary",
            f"{_number(view.draft_vocabulary)} of the target's {_number(view.vocabulary)}",
        ),
        ("positions", _number(view.max_positions)),
    ]
    if view.coverage is not None:
        rows.append(("coverage", f"{percent(view.coverage)} of the counted tokens"))
    if view.target_layers is not None:
        rows.append(("target", f"{view.target_type}, {view.target_layers} layers"))
    for key, ids in view.layer_ids:
        rows.append(("ids in", f"{key} = {list(ids)}"))
    if not view.layer_ids:
        rows.append(("ids in", "none: engines use their defaults"))
    lines = columns(rows)
    if view.captures:
        table: list[Row] = [("CAPTURES", "HS", "FROM", "REMARK")]
        for capture in view.captures:
            slots = UNKNOWN if capture.slots is None else f"{list(capture.slots)}"
            remark = f"crashes: {capture.crash}" if capture.crash else "; ".join(capture.notes)
            table.append((capture.name, slots, capture.key or "default", remark))
        lines += ["", *columns(table)]
    return lines


def check_lines(view: CheckView) -> list[str]:
    """Return the figures of one wiring, a line for each step."""
    table: list[Row] = [("STEP", "ACCURACY", "SURVIVAL", "CONDITIONAL", "POSITIONS")]
    table += [
        (
            str(step.step),
            _share(step.accuracy, step.accuracy_se),
            _share(step.survival, step.survival_se),
            _share(step.conditional, step.conditional_se),
            str(step.positions),
        )
        for step in view.steps
    ]
    error = f"+- {view.accept_length_se:.2f}"
    return [
        f"fed with [{', '.join(view.wiring)}]: accept length {length(view.accept_length)} {error}",
        *_as_served(view.served),
        *columns(table, right=frozenset({0, 1, 2, 3, 4})),
        ", ".join(
            (
                f"coverage {percent(view.coverage)}",
                f"{count(view.tokens)} tokens in {view.sequences} sequences",
                f"errors over {view.observations} observations",
                f"expected is the {view.expected}",
                f"{view.dtype} on {view.device}",
                f"{memory(view.feature_bytes)} of hidden states",
                f"{view.seconds:.1f} s",
            )
        ),
        *(f"note: {note}" for note in view.notes),
        "",
    ]


def _as_served(view: RoundFigures | None) -> list[str]:
    if view is None:
        return []
    error = f"+- {view.accept_length_se:.2f}"
    steps = " ".join(f"{100 * share:.1f}" for share in view.survival)
    return [
        (
            f"as a server counts: accept length {length(view.accept_length)} {error}, "
            f"survival {steps} % over {view.rounds} rounds"
        )
    ]


def search_lines(view: SearchView) -> list[str]:
    """Return the best wiring, and what came next."""
    certain = "" if view.decided else " (not certain: capture more text)"
    if not view.fits:
        certain = " (no: nothing fits, this is the best of noise)"
    margin = UNKNOWN if view.margin_se is None else f"{view.margin_se:.1f} standard errors"
    settings = _errors(view.settings_margin_se)
    table: list[Row] = [("TRAINED ON", "ACCURACY", "BEHIND", "BEHIND IN ACCURACY")]
    table += [
        (
            str(scored.hypothesis),
            percent(scored.accuracy),
            _errors(scored.behind_se),
            _errors(scored.behind_accuracy_se),
        )
        for scored in (view.best, *view.others[:_SHOWN_OTHERS])
    ]
    nearest = f"the nearest on {view.positions} positions and {view.steps} steps"
    return [
        f"trained on {view.best.hypothesis}{certain}",
        f"ahead of other layers by {margin}, of other settings by {settings}",
        *columns(table, right=frozenset({1, 2, 3})),
        f"{view.tried} wirings tried, {nearest}, in {view.seconds:.1f} s",
    ]


def labels_line(view: Relabelled) -> str:
    """Return what a draft's choices tell, whatever its d2t says."""
    return (
        f"labels: {percent(view.accuracy)} right by d2t, {percent(view.relabelled)} with each row "
        f"for the token that comes with it, {percent(view.by_last_token)} by the last token alone"
    )


def diagnosis_lines(view: DraftDiagnosis) -> list[str]:
    """Return the verdict, the wiring, the steps offline and served, and the fix."""
    certain = "" if view.certain else " (to be confirmed)"
    lines = [f"{view.verdict}: {view.sentence}{certain}"]
    lines += [f"  because {line}" for line in view.evidence]
    table: list[Row] = [("STEP", "OFFLINE, AS TRAINED", "OFFLINE, AS SERVED", "SERVED")]
    known = (view.offline, view.offline_as_served, view.served)
    for step in range(max(len(survival) for survival in known)):
        cells = [percent(s[step]) if step < len(s) else UNKNOWN for s in known]
        table.append((str(step + 1), *cells))
    if len(table) > 1:
        lines += ["", *columns(table, right=frozenset({0, 1, 2, 3}))]
    if view.fixes:
        lines += ["", *(f"fix: {fix}" for fix in view.fixes)]
    return lines


def capture_lines(view: Captured) -> list[str]:
    """Return what a capture wrote."""
    rows: list[Row] = [
        ("written", f"{view.path}, {memory(view.size_bytes)}"),
        ("text", f"{count(view.tokens)} tokens in {view.sequences} sequences"),
        ("counting", f"{count(view.scored)} positions of the continuation"),
        ("layers", f"hs {list(view.layers)}"),
        *(("note", note) for note in view.notes),
    ]
    return columns(rows)


def outlook_line(view: CaptureOutlook) -> str:
    """Return what a capture costs."""
    free = (
        "free memory is not known" if view.free_bytes is None else f"{memory(view.free_bytes)} free"
    )
    return (
        f"capturing loads the target ({memory(view.weights_bytes)}, {free} on {view.device}), "
        f"continues {view.prompts} prompts by {view.new_tokens} tokens and holds about "
        f"{memory(view.hidden_bytes)} of hidden states"
    )


def _share(value: float | None, error: float | None) -> str:
    if value is None or error is None:
        return UNKNOWN
    return f"{100 * value:.1f} +- {100 * error:.1f} %"


def _errors(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} SE"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
