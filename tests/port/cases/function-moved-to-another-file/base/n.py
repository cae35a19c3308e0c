import re


def other(x):
    return re


