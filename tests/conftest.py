"""What is said at the end of a test run, so that nobody overlooks it."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    if any("no Chromium" in reason for reason in skipped):
        terminalreporter.write_sep(
            "!",
            "THE PAGE WAS NOT TESTED: no Chromium found (apt-get install chromium)",
            red=True,
            bold=True,
        )
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"measured, not asserted: {value}")
