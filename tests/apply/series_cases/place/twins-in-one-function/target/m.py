import os
class A:
    def run(self):
        begin()
        start()
        step()
        stop()
        more()
        start()
        step()
        stop()
        more()
        last()
