"""Stored results as tables, figures and one HTML page: a pure function of what is on disk."""

from ancl.reporting.collect import Collected, collect, of_results
from ancl.reporting.figures import INSTALL, can_draw
from ancl.reporting.page import Report, make_report, page
from ancl.reporting.tables import Table
from ancl.reporting.write import write_page, write_report

__all__ = [
    "INSTALL",
    "Collected",
    "Report",
    "Table",
    "can_draw",
    "collect",
    "make_report",
    "of_results",
    "page",
    "write_page",
    "write_report",
]
