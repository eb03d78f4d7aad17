"""Values of the language: kinds, members, numbers, texts and sizes."""
