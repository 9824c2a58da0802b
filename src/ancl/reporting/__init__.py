"""Stored results as tables, figures and one HTML page. Deterministic; nothing is trained."""

from ancl.reporting.collect import Collected, collect, from_results
from ancl.reporting.figures import INSTALL, can_draw
from ancl.reporting.page import Report, make_report, page
from ancl.reporting.rules import claim_rules, write_rules
from ancl.reporting.tables import Table
from ancl.reporting.write import (
    Page,
    ReportResult,
    claim_study,
    page_of,
    report,
    write_page,
    write_report,
    write_study,
)

__all__ = [
    "INSTALL",
    "Collected",
    "Page",
    "Report",
    "ReportResult",
    "Table",
    "can_draw",
    "claim_rules",
    "claim_study",
    "collect",
    "from_results",
    "make_report",
    "page",
    "page_of",
    "report",
    "write_page",
    "write_report",
    "write_rules",
    "write_study",
]
