"""Tests of pushes to destinations of Syncmaven."""
