class A:
    def run(self):
        start()
        step()
        stop()
        more()
        start()
        step()
        stop()
        more()
