"""Programs for those who work on Dal Segno itself."""
