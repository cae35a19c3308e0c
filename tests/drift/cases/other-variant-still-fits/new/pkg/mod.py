import sys

if sys.platform == "linux":

    def run(a, b, c):
        return a

else:

    def run(a, b):
        return a
