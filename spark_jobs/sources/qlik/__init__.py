"""Parts that Qlik's change tables and Qlik's messages share: types, column masks, positions, files with a ``.dfm``."""
