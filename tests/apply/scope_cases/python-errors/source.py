import os


def before():
    return 1


def broken(:
    x = 1


def after():
    return 2


class Holder:
    def fine(self):
        return 3

    def torn(self):
        y = = 2
        return y

    def also_fine(self):
        return 4


class Torn(:
    def hidden(self):
        return 5


class Last:
    def method(self):
        return 6
