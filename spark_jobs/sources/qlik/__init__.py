"""What Qlik's sources share: types, column masks, positions, files with a ``.dfm``."""
