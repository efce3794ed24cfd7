"""Figures, and the pages that hold them."""
