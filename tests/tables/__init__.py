"""Tests of reading input tables and of release folders."""
