"""The job of goodput.py, as a user of each contender writes it.

python goodput_job.py ours|keras|guide|graph --model_dir=FOLDER --max_steps=N --save_every_steps=N
python goodput_job.py time                 prints the seconds that a step takes by itself
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import workloads

# Most of a step is waited for, as for an accelerator: on a machine that does other things too, a
# step that computes takes 20 % more in one minute than in another, which hides what is looked for.
SIZE = workloads.Workload(
    "job", features=128, width=400, layers=2, batch=8, stretch=0, wait_secs=0.006
)


def ours(argv):
    """This package."""
    import trainer

    class Job(workloads.Program):
        """The workload with the constructor that `app.run` calls."""

        def __init__(self, config, hooks=()):
            super().__init__(SIZE, config, hooks)

    trainer.app.run(Job, argv=argv)


def keras(argv):
    """Keras' `fit` with `BackupAndRestore`."""
    flags = flags_of(argv)
    net = workloads.model(SIZE)
    net.compile(workloads.optimizer(), workloads.loss(), steps_per_execution=50)
    # As epochs, since it goes on at the beginning of the epoch in which it was killed.
    backup = tf.keras.callbacks.BackupAndRestore(os.path.join(flags["model_dir"], "backup"))
    steps, every = int(flags["max_steps"]), int(flags["save_every_steps"])
    net.fit(
        workloads.dataset(SIZE),
        steps_per_epoch=every,
        epochs=-(-steps // every),
        verbose=0,
        callbacks=[backup],
    )


def guide(argv):
    """The custom loop of TensorFlow's migration guide, with the restore that it leaves out."""
    by_hand(argv, in_graph=False)


def graph(argv):
    """The same with the loop over steps in the graph, which the guide does not have."""
    by_hand(argv, in_graph=True)


def by_hand(argv, *, in_graph):
    """A loop written by hand that saves with `tf.train.CheckpointManager`."""
    flags = flags_of(argv)
    step = tf.function(workloads.make_step(SIZE))
    count = tf.Variable(0, dtype=tf.int64)
    iterator = iter(workloads.dataset(SIZE))
    parts = step.python_function.parts
    checkpoint = tf.train.Checkpoint(count=count, iterator=iterator, **parts)
    manager = tf.train.CheckpointManager(checkpoint, flags["model_dir"], max_to_keep=5)
    checkpoint.restore(manager.latest_checkpoint)

    def loop(iterator, steps):
        for _ in tf.range(steps) if in_graph else range(int(steps)):
            step(next(iterator))
            count.assign_add(1)

    run = tf.function(loop) if in_graph else loop
    most, every = int(flags["max_steps"]), int(flags["save_every_steps"])
    while int(count) < most:
        run(iterator, tf.constant(min(every, most - int(count))))
        manager.save()


def time_steps():
    """Prints the seconds that a step takes in a loop with nothing around it."""
    step, iterator = workloads.make_step(SIZE), iter(workloads.dataset(SIZE))

    @tf.function
    def loop(iterator, steps):
        for _ in tf.range(steps):
            step(next(iterator))

    loop(iterator, tf.constant(200))
    begun = time.perf_counter()
    loop(iterator, tf.constant(1000))
    print((time.perf_counter() - begun) / 1000)


def flags_of(argv):
    """Returns the flags of a command line, which are all of the form --name=value."""
    return dict(word.removeprefix("--").split("=", 1) for word in argv[1:])


if __name__ == "__main__":
    workloads.fix_threads()
    if sys.argv[1] == "time":
        time_steps()
    else:
        jobs = {"ours": ours, "keras": keras, "guide": guide, "graph": graph}
        jobs[sys.argv[1]]([sys.argv[0], *sys.argv[2:]])
