"""The sections of the page: functions (Evaluation) -> Section | None; their order is `page.SECTIONS`."""
