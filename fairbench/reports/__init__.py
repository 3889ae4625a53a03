"""Reports: tables and figures, pure functions of a summary. Nothing here needs torch."""
