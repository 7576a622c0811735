"""Scripts of what callers do while an agent speaks; tests/support/overlaps.py reads them."""
