"""The tests of Dal Segno."""
