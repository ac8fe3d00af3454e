"""What is wrong within a draft's own files, judged by its offline run.

A server that reads the same files is as wrong as the run, so that served figures tell nothing here:
what tells is that the draft does better when a file is read otherwise than it says.
"""

from eaglemon.core.draft_verdict import DraftEvidence, DraftVerdict, Finding
from eaglemon.core.draft_views import TARGET_ROPE, CheckView, Relabelled
from eaglemon.core.problems import Severity
from eaglemon.core.units import percent

LOW_COVERAGE = 0.93
SURE_SE = 5.0
_MORE_THAN_LAST = 0.1
_SERVES = 2.0
"""A draft that is served this well has all its engine needs, under whatever names."""
_WORTH = 1.05
"""Other settings are to blame where they give more than this times the tokens."""
BROKEN_FILES = frozenset({"missing-tensor", "tensor-shape"})
"""Problems that leave weights of a served draft random, at ones or unread."""
_DOUBTS = frozenset({"target-mismatch", "tensor-shape", "missing-tensor", "not-finite"})
"""Problems of files that may be why nothing fits."""


def broken_finding(known: DraftEvidence) -> Finding | None:
    """Judge a draft that lacks tensors its own configuration asks for, or has others' shapes."""
    faults = [
        problem
        for problem in known.inspect.problems
        if problem.slug in BROKEN_FILES and problem.severity is Severity.ERROR
    ]
    served = known.served.accept_length if known.served else None
    serves = served is not None and served >= _SERVES
    norms = all("norm" in fault.where for fault in faults)
    # Without a norm's weights a draft may still serve; without others it has them by other names.
    if not faults or (serves and not norms):
        return None
    settings = "set the norm flags of config.json as it was trained" if norms else ""
    return Finding(
        verdict=DraftVerdict.NORMS if norms else DraftVerdict.WEAK,
        sentence=f"the draft's files are not what its config.json asks for: {faults[0].where} "
        f"{faults[0].message}",
        evidence=(
            *(str(fault) for fault in faults),
            *([] if served is None else [f"served accept length {served:.2f}"]),
        ),
        fixes=(*([settings] if settings else []), "save the whole draft again, and restart"),
        certain=not serves,
    )


def mislabelled_finding(known: DraftEvidence) -> Finding | None:
    """Judge a draft whose choices mean other tokens than its files say."""
    seen = known.relabelled
    if seen is None or (known.search and known.search.best.hypothesis.absolute_ids):
        return None
    surely = seen.relabelled - SURE_SE * seen.relabelled_se
    # What it chooses from the last token alone, however it is fed, is no label of its own.
    if surely < max(2 * seen.accuracy, seen.by_last_token + _MORE_THAN_LAST):
        return None
    faults = [str(p) for p in known.inspect.problems if p.slug == "vocabulary"]
    figures = (
        f"offline {percent(seen.accuracy)} of its first choices are right by d2t, "
        f"{percent(seen.relabelled)} +- {percent(seen.relabelled_se)} once each row stands for "
        "the token that comes with it in the other half of the text"
    )
    return Finding(
        verdict=DraftVerdict.VOCABULARY,
        sentence=f"the draft's choices stand for other tokens than its d2t says{_shifted(seen)}",
        evidence=(figures, *faults),
        fixes=("save d2t, t2d and lm_head together again: a run cannot tell which is displaced",),
    )


def _shifted(seen: Relabelled) -> str:
    if seen.row_shift:
        return f": rows of lm_head and d2t are {abs(seen.row_shift)} apart"
    if seen.id_shift:
        return f": its target ids are off by {seen.id_shift:+d}"
    return ""


def vocabulary_finding(known: DraftEvidence, right: CheckView | None) -> Finding | None:
    """Judge ``d2t`` by its reading and its form, and how much of the text it covers."""
    search = known.search
    faults = [p for p in known.inspect.problems if p.slug == "vocabulary"]
    if search is not None and search.best.hypothesis.absolute_ids:
        return Finding(
            verdict=DraftVerdict.VOCABULARY,
            sentence="d2t holds absolute target ids, engines read offsets",
            evidence=("offline the draft fits only with d2t read as absolute ids",),
            fixes=("save d2t as target id - draft id",),
        )
    if faults:
        return Finding(
            verdict=DraftVerdict.VOCABULARY,
            sentence=f"the draft's vocabulary is broken: {faults[0].where} {faults[0].message}",
            evidence=tuple(str(fault) for fault in faults),
            fixes=("save d2t and t2d with the draft again",),
        )
    coverage = known.inspect.coverage
    if coverage is None and right is not None:
        coverage = right.coverage
    unfit = search is not None and not search.fits
    if coverage is not None and coverage < LOW_COVERAGE and not unfit:
        return Finding(
            verdict=DraftVerdict.VOCABULARY,
            sentence=f"the draft's vocabulary covers only {coverage:.1%} of this text",
            evidence=("tokens it does not know are never accepted",),
            fixes=("retrain with a vocabulary counted on such text",),
        )
    return None


def settings_finding(known: DraftEvidence, right: CheckView | None) -> Finding | None:
    """Judge settings that the draft fits only with others than it has.

    ``right`` are its offline figures with the others. Where they bring next to nothing, they are
    not what is wrong: a weak draft fits badly with any.
    """
    search = known.search
    if search is None or not search.fits:
        return None
    best = search.best.hypothesis
    shifted = best.token_shift or best.hidden_shift or best.halves_swapped
    if not (best.flags or shifted):
        return None
    if not shifted and not _worth(known.as_is, right):
        return None
    margin = search.settings_margin_se
    sure = margin is not None and margin > SURE_SE
    ahead = "?" if margin is None else f"{margin:.1f} standard errors"
    evidence = f"offline {ahead} ahead of other settings"
    if TARGET_ROPE in best.flags:
        return _rope_finding(known, evidence, certain=sure and not shifted)
    flags = ", ".join(f"{flag[1:]} {'on' if flag[0] == '+' else 'off'}" for flag in best.flags)
    return Finding(
        verdict=DraftVerdict.NORMS,
        sentence=f"the draft fits only with {flags}, its config.json says otherwise"
        if flags
        else f"the draft fits only as {best}",
        evidence=(evidence,),
        fixes=(_settings_fix(flags, swapped=best.halves_swapped),),
        certain=sure and not shifted,
    )


def _settings_fix(flags: str, *, swapped: bool) -> str:
    if flags:
        return f"set it in the draft's config.json ({flags}) and restart"
    if swapped:
        return (
            "engines join the embedding first: swap the column halves of q_proj, k_proj and v_proj"
        )
    return (
        "the hidden states were dumped out of place, or the draft was trained on such: "
        "capture anew, and train on what engines hand over"
    )


def _worth(own: CheckView | None, right: CheckView | None) -> bool:
    if own is None or right is None:
        return True
    return right.served_length >= _WORTH * own.served_length


def _rope_finding(known: DraftEvidence, evidence: str, *, certain: bool) -> Finding:
    mismatch = [str(p) for p in known.inspect.problems if p.where == "rope"]
    return Finding(
        verdict=DraftVerdict.CONTEXT,
        sentence="the draft fits with the target's RoPE, its config.json says another",
        evidence=(*mismatch, evidence),
        fixes=("set rope_theta and rope_scaling of the draft to the target's, and restart",),
        certain=certain,
    )


def doubts_of(known: DraftEvidence) -> tuple[str, ...]:
    """Return what in the files may be why a draft is weak."""
    return tuple(str(p) for p in known.inspect.problems if p.slug in _DOUBTS)


def unfit_finding(known: DraftEvidence) -> Finding | None:
    """Judge a draft that nothing makes fit: its own weights are in doubt, not how it is fed."""
    search = known.search
    if search is None or search.fits:
        return None
    best = (
        f"at best {percent(search.best.accuracy)} of its first steps are right offline, "
        f"of {search.tried} ways to feed it"
    )
    doubts = doubts_of(known)
    return Finding(
        verdict=DraftVerdict.WEAK,
        sentence="no layers, order or settings make the draft fit this target: it is untrained, "
        "damaged, or another target's",
        evidence=(best, *doubts),
        fixes=("compare its files with those published, and the target with the one it is for",),
        certain=False,
    )
