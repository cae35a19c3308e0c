"""A module."""

import os
import sys


def alpha(x):
    y = x + 1
    y = y * 2
    z = y - 3
    return z


def beta(x):
    y = x + 1
    y = y * 2
    z = y - 4
    return z


def gamma(x):
    w = [x]
    w.append(2)
    return w


