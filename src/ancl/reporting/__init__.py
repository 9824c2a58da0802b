"""Stored results as tables, figures and one HTML page. Deterministic; nothing is trained."""

from ancl.reporting.collect import Collected, collect, from_results
from ancl.reporting.figures import INSTALL
from ancl.reporting.page import Report, make_report, page
from ancl.reporting.studies import claim_study, write_study
from ancl.reporting.tables import Table
from ancl.reporting.write import (
    Page,
    ReportResult,
    page_of,
    report,
    write_page,
    write_report,
)

__all__ = [
    "INSTALL",
    "Collected",
    "Page",
    "Report",
    "ReportResult",
    "Table",
    "claim_study",
    "collect",
    "from_results",
    "make_report",
    "page",
    "page_of",
    "report",
    "write_page",
    "write_report",
    "write_study",
]
