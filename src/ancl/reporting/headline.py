"""What the numbers say, in sentences: made from the numbers, and no more than they say."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ancl.errors import counted
from ancl.experiments.groups import Group
from ancl.experiments.pairing import Difference, Sweep
from ancl.metrics import METRICS, SEEDS, Estimate, Interval
from ancl.wording import method_title, percent, points, with_error

_HELD = ("ewc", "mas", "si", "rwalk", "lwf", "lfl", "lwm")
"""Methods that are the task's loss and Ω, and nothing else."""
_MOST = 3
_BOTH = ("finetune", "joint")


class Finding(NamedTuple):
    """A sentence or two, and what they are about.

    Args:
        kind: ``best``, ``forgetting``, ``method``, ``variant``, ``sweep`` or ``summary``.
        text: The sentences.
    """

    kind: str
    text: str


def findings(
    groups: Sequence[Group], differences: Mapping[Group, Difference], sweeps: Sequence[Sweep]
) -> list[Finding]:
    """What the groups of one stream show: forgetting, then Ω, then the auxiliary network."""
    sentences = [_best(groups), _forgetting(groups), *_methods(groups)]
    pairs = [differences[group] for group in groups if group in differences]
    along = [sweep for sweep in sweeps if sum(group in differences for group in sweep.groups) > 1]
    alone = [p for p in pairs if not any(p.group in sweep.groups for sweep in along)]
    sentences += [_variant(pair) for pair in alone]
    sentences += [_sweep(sweep, differences) for sweep in along]
    sentences.append(_summary(pairs))
    return [sentence for sentence in sentences if sentence]


def _best(groups: Sequence[Group]) -> Finding | None:
    metric = groups[0].decisive
    known = [group for group in groups if not math.isnan(group.estimate(metric).mean)]
    learners = [group for group in known if group.base != "joint"] or known
    if not learners:
        return None
    if len(learners) == 1:
        return _single(learners[0])
    text = _ranked(learners, metric)
    joint = next((group for group in known if group not in learners), None)
    if joint:
        ends = percent(joint.estimate(metric).mean)
        text += f"; joint training, which sees all images again, {ends} %"
    return Finding("best", f"{text}.")


def _single(group: Group) -> Finding:
    lost, new = (group.estimate(name) for name in ("forgetting", "learning_accuracy"))
    ends = f"{_ends([group], group.decisive)}."
    if math.isnan(lost.mean):
        return Finding("best", ends)
    learned = f"it learned new tasks to {percent(new.mean)} %"
    return Finding("best", f"{ends} On earlier tasks it {change(lost.mean)} points; {learned}.")


def _ranked(groups: Sequence[Group], metric: str) -> str:
    """Which one is the highest, where that is known; what is not told apart is not ranked."""
    first, *others = sorted(groups, key=lambda group: -group.estimate(metric).mean)
    if min(len(group.seeds) for group in groups) < SEEDS:
        return f"{_ends(groups, metric)}: fewer than {SEEDS} seeds do not rank them"
    near = [group for group in others if not _above(first, group, metric)]
    if near:
        alike = [group for group in groups if group is first or group in near]
        return f"No clear highest of {len(groups)}: {_ends(alike, metric)} are not told apart"
    text = f"Highest of {len(groups)}: {_ends([first], metric)}"
    second, *rest = others
    if all(_above(second, group, metric) for group in rest):
        return f"{text}, then {second.title} {with_error(second.estimate(metric))} %"
    least, most = (percent(group.estimate(metric).mean) for group in (rest[-1], second))
    return f"{text}, then {len(others)} from {least} to {most} %"


def _above(group: Group, other: Group, metric: str) -> bool:
    """Whether a group is above another beyond the interval of their difference."""
    interval = Difference.between(group, other).interval(metric)
    return interval is not None and interval.side > 0


def _ends(groups: Sequence[Group], metric: str) -> str:
    """Where a few groups end, in the order of the tables."""
    shown = [f"{group.title} {with_error(group.estimate(metric))} %" for group in groups[:_MOST]]
    more = f" and {len(groups) - _MOST} more" if len(groups) > _MOST else ""
    counts = sorted({len(group.seeds) for group in groups})
    n = "–".join(map(str, counts[:: max(len(counts) - 1, 1)]))
    return f"{', '.join(shown)} {METRICS[metric].label}{more} (n = {n})"


def _forgetting(groups: Sequence[Group]) -> Finding | None:
    plain, joint = _only(groups, "finetune"), _only(groups, "joint")
    lost = plain.estimate("forgetting").mean if plain else math.nan
    if math.isnan(lost):
        return None
    text = f"fine-tuning {change(lost)} points on earlier tasks while it learned later ones"
    if joint:
        text += (
            f"; joint training, which sees all images again, "
            f"{change(joint.estimate('forgetting').mean)} and ends at "
            f"{percent(joint.estimate('aac').mean)} %"
        )
    return Finding("forgetting", f"Forgetting: {text}.")


def _methods(groups: Sequence[Group]) -> list[Finding]:
    """What each plain method does, beside fine-tuning; in one sentence where there are many."""
    bases = dict.fromkeys(g.base for g in groups if g.variant == "CL" and g.base not in _BOTH)
    hosts = [host for base in bases if (host := _only(groups, base))]
    hosts = [host for host in hosts if not math.isnan(host.estimate("forgetting").mean)]
    plain = _only(groups, "finetune")
    if len(hosts) > _MOST:
        return [_many(hosts)]
    if plain is None:
        return []
    learned = percent(plain.estimate("learning_accuracy").mean)
    return [_method(host, learned) for host in hosts]


def _method(host: Group, finetuning: str) -> Finding:
    lost, new, end = (host.estimate(n).mean for n in ("forgetting", "learning_accuracy", "aac"))
    held = host.base in _HELD
    start = f"What Ω does: held to its old network, {host.title}" if held else host.title
    return Finding(
        "method",
        f"{start} {change(lost)} points and learns a new task to {percent(new)} % (fine-tuning "
        f"{finetuning} %); it ends at {percent(end)} %.",
    )


def _many(hosts: Sequence[Group]) -> Finding:
    def ends(metric: str) -> tuple[Group, Group]:
        ranked = sorted(hosts, key=lambda host: host.estimate(metric).mean)
        return ranked[0], ranked[-1]

    (least, most), (stable, forgetful) = ends("aac"), ends("forgetting")
    if min(len(host.seeds) for host in hosts) < SEEDS:
        low, high = (percent(host.estimate("aac").mean) for host in (least, most))
        return Finding("method", f"{len(hosts)} plain methods end between {low} and {high} %.")
    return Finding(
        "method",
        f"{len(hosts)} plain methods end between {percent(least.estimate('aac').mean)} % "
        f"({least.title}) and {percent(most.estimate('aac').mean)} % ({most.title}); "
        f"{stable.title} {change(stable.estimate('forgetting').mean)} points on earlier tasks, "
        f"{forgetful.title} {change(forgetful.estimate('forgetting').mean)}.",
    )


def _variant(pair: Difference) -> Finding:
    group, host = pair.group, pair.host
    if pair.pairing.refused:
        why = "; ".join(pair.pairing.refused)
        return Finding("variant", f"{group.title} is not compared with {host.title}: {why}.")
    adds = "What the auxiliary network adds: " if group.variant == "ANCL" else ""
    new, lost = (pair.estimate(name) for name in ("learning_accuracy", "forgetting"))
    text = ""
    if new and lost and not math.isnan(lost.mean) and new.n < SEEDS:
        text = (
            f"{adds}{group.title} minus {host.title}: learning accuracy {points(new.mean)}, "
            f"forgetting {points(lost.mean)} points. "
        )
    elif new and lost and not math.isnan(lost.mean):
        text = (
            f"{adds}compared with {host.title}, {group.title} learns {more(new)} and forgets "
            f"{more(lost)}. "
        )
    text += difference_text(pair)
    if pair.pairing.differing:
        text += f" They also differ in this: {pair.pairing.text}."
    return Finding("variant", text[0].upper() + text[1:])


def difference_text(pair: Difference) -> str:
    """The difference in the metric that counts, with its interval and what that allows to say."""
    metric = pair.group.decisive
    interval = pair.interval(metric)
    assert interval is not None, "it is not refused"
    start = f"{METRICS[metric].label} of {pair.group.title} minus {pair.host.title}"
    return f"{start}: {interval_sentence(interval)}"


def interval_sentence(interval: Interval) -> str:
    """A difference in points with its interval, and whether it is one.

    >>> interval_sentence(Interval(0.012, 0.005, 0.019, 0.01, 5))
    '+1.20 points, 95 % interval +0.50 to +1.90 over 5 seeds, on these test images: higher.'
    """
    mean, low, high = map(points, interval[:3])
    if interval.n < 2:
        return f"{mean} points with a single seed, which says nothing about its error."
    if interval.n < SEEDS:
        return f"{mean} points over {interval.n} seeds, too few to say more."
    verdict = {1: "higher", 0: "no clear difference", -1: "lower"}[interval.side]
    return (
        f"{mean} points, 95 % interval {low} to {high} over {interval.n} seeds, on these test "
        f"images: {verdict}."
    )


def _sweep(sweep: Sweep, differences: Mapping[Group, Difference]) -> Finding:
    """Differences along λ_a: none is picked, because the best of several favours the variant."""
    along = [
        (value, interval)
        for value, group in zip(sweep.values, sweep.groups, strict=True)
        if group in differences
        and (interval := differences[group].interval(group.decisive)) is not None
    ]
    last = differences[sweep.groups[-1]]
    if not along:
        return _variant(last)
    texts = [f"{_with_interval(gap)} at {value:g} (n = {gap.n})" for value, gap in along]
    label = METRICS[last.group.decisive].label
    return Finding(
        "sweep",
        f"{method_title(last.group.spec.method)} over λ_a, {label} minus {last.host.title} in "
        f"points: {', '.join(texts)}.",
    )


def _with_interval(found: Interval) -> str:
    """The interval of two seeds is too wide to be read beside others."""
    interval = f" [{points(found.low)}, {points(found.high)}]" if found.n >= SEEDS else ""
    return f"{points(found.mean)}{interval}"


def _summary(pairs: Sequence[Difference]) -> Finding | None:
    """How many differences are beyond their interval, and how many would be by chance."""
    intervals = [pair.interval(pair.group.decisive) for pair in pairs]
    tested = [interval for interval in intervals if interval and interval.n >= SEEDS]
    if len(tested) < _MOST:
        return None
    higher, lower = (sum(interval.side == side for interval in tested) for side in (1, -1))
    chance = len(tested) * 0.05
    return Finding(
        "summary",
        f"Of {counted(len(tested), 'difference')} with several seeds, {higher} are higher and "
        f"{lower} lower beyond their 95 % interval; about {chance:.1f} would be by chance alone.",
    )


def more(difference: Estimate) -> str:
    """A difference in words.

    >>> more(Estimate(0.011, 0.002, 5)), more(Estimate(-0.011, math.nan, 1))
    ('1.1 ± 0.2 points more', '1.1 points less')
    >>> more(Estimate(-0.0001, 0.0001, 5))
    'as much (0.0 ± 0.0 points apart)'
    """
    size = with_error(difference._replace(mean=abs(difference.mean)))
    if _nothing(difference.mean):
        return f"as much ({size} points apart)"
    return f"{size} points {'less' if difference.mean < 0 else 'more'}"


def change(forgetting: float) -> str:
    """Forgetting as what happened; negative forgetting is a gain.

    >>> change(0.021), change(-0.021)
    ('lost 2.1', 'gained 2.1')
    """
    gained = forgetting < 0 and not _nothing(forgetting)
    return f"{'gained' if gained else 'lost'} {percent(abs(forgetting))}"


def _nothing(fraction: float) -> bool:
    """Whether it is 0 as it is shown."""
    return percent(abs(fraction)) == percent(0.0)


def _only(groups: Sequence[Group], base: str) -> Group | None:
    """The plain method's group, where there is just one."""
    plain = [group for group in groups if (group.base, group.variant) == (base, "CL")]
    return plain[0] if len(plain) == 1 else None
