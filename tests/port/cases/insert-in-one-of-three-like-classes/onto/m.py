import os
import sys


class Three(Base):
    def run(self):
        start()
        stop()


class Zero(Base):
    def run(self):
        start()
        stop()


class Two(Base):
    def run(self):
        start()
        stop()


class One(Base):
    def run(self):
        start()
        stop()


