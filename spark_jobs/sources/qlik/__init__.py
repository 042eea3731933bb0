"""Shared parts of Qlik's sources: types, column masks, positions, data files with a ``.dfm``."""
