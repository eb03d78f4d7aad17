"""The grammar of expressions: lexer, parser and syntax tree."""
