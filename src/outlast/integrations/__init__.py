"""Frameworks: what makes outlast at home in each of them.

A room for each framework, which may import everything below the command line and nothing of the other rooms (but FastAPI
is built on Starlette). Each imports its own framework and no other, so who has one needs none of the rest.
"""
