"""Lets the base classes explain their failing assertions as test files do."""

import pytest

pytest.register_assert_rewrite("tests.conformance.event_store")
