"""Stored results as tables, figures and one HTML page: a pure function of what is on disk."""

from ancl.report.collect import Collected, collect, of_results
from ancl.report.content import Report, make_report
from ancl.report.figures import INSTALL, can_draw
from ancl.report.html import page
from ancl.report.tables import Table
from ancl.report.write import write_page, write_report

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
