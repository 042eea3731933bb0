"""Odd but possible inputs, judged by sources that know their own rows: each ends equal, or somebody is reported."""
