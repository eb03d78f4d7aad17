"""Small programs as collections of algorithms have them: plain functions, which tests also run as workflows."""
