"""Behaviours: policies of many risks and skills, learned on a simulator, to make data with."""
