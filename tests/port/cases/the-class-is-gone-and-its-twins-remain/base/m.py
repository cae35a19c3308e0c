import os
import sys


class One(Base):
    def run(self):
        start()
        stop()


class Two(Base):
    def run(self):
        start()
        stop()


class Three(Base):
    def run(self):
        start()
        stop()


