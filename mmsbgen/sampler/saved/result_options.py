"""Options of results: the rule for communities and the number of stored memberships."""

from __future__ import annotations

from dataclasses import dataclass

from mmsbgen.base.declared_options import check_options, option

RULE_NAMES = ("evidence", "share", "threshold", "link", "top")


@dataclass(frozen=True)
class ResultOptions:
    """Options of results; they do not affect the chain."""

    rule: str = option(RULE_NAMES[0], "Rule that makes communities of memberships.", "advanced", choices=RULE_NAMES)
    threshold: float | None = option(
        None, "Threshold of the rule; each has its default.", "advanced", least=0, most=2**31
    )
    top: int = option(16, "Largest memberships of each vertex that are kept.", "advanced", least=1, most=2**24)

    def __post_init__(self) -> None:
        from mmsbgen.sampler.diagnostics.communities import checked_threshold

        check_options(self)
        checked_threshold(self.rule, self.threshold)
