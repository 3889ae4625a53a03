"""The leaderboard as static pages: a page a board, a page a model, readable from ``file://`` and without a network.

Templates are in ``templates``, what all pages share in ``assets``. Figures are HTML and SVG, not pictures: they follow
the width of the page and the colour scheme, and need no drawing library. The same entries give the same bytes.
"""

from fairbench.reports.site.writing import INDEX, SITE, refuse_foreign, write_pages

__all__ = ["INDEX", "SITE", "refuse_foreign", "write_pages"]
