"""report.html: a self-contained page without network requests.

The macros, the style sheet, the SVG charts and the filter of rows know nothing of this one page, so that other pages of
Assay can use them.
"""
