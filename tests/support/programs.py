"""Programs that tests train, in this process or in one of their own."""

import atexit
import os
import tempfile

import numpy as np
import tensorflow as tf

import trainer

from conftest import Summing

FEATURES, CLASSES, ROWS = 6, 3, 40


def rows():
    """Returns float32[40, 6] and int64[40]."""
    generator = np.random.default_rng(3)
    return (
        generator.normal(size=(ROWS, FEATURES)).astype(np.float32),
        generator.integers(0, CLASSES, ROWS),
    )


class Classifier(trainer.Trainer):
    """A model and an optimizer; the last batch of each epoch is short."""

    traces = None

    def make_model(self):
        return tf.keras.Sequential(
            [
                tf.keras.Input((FEATURES,)),
                tf.keras.layers.Dense(5, activation="relu"),
                tf.keras.layers.Dropout(0.3),
                tf.keras.layers.Dense(CLASSES),
            ]
        )

    def make_optimizer(self):
        return tf.keras.optimizers.SGD(0.1)

    def build(self):
        self.model = self.make_model()
        self.optimizer = self.make_optimizer()

    def train_dataset(self):
        return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS).batch(9).prefetch(2)

    def logits(self, images):
        return self.model(images, training=True)

    def apply(self, gradients, variables):
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def train_step(self, batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.logits(images))
            )
        variables = self.model.trainable_variables
        self.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Momentum(Classifier):
    def make_optimizer(self):
        return tf.keras.optimizers.SGD(0.1, momentum=0.9)


class Adam(Classifier):
    def make_optimizer(self):
        return tf.keras.optimizers.Adam(0.01)


class Schedule(Classifier):
    def make_optimizer(self):
        rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)
        return tf.keras.optimizers.SGD(rate)


class Ema(Classifier):
    def make_optimizer(self):
        return tf.keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=4)


class LossScale(Classifier):
    def make_optimizer(self):
        inner = tf.keras.optimizers.SGD(0.1, momentum=0.5)
        return tf.keras.optimizers.LossScaleOptimizer(
            inner, initial_scale=8.0, dynamic_growth_steps=2
        )

    def train_step(self, batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.logits(images))
            )
            scaled = self.optimizer.scale_loss(loss)
        variables = self.model.trainable_variables
        self.apply(tape.gradient(scaled, variables), variables)
        return {"loss": loss}


class Accumulation(Classifier):
    def make_optimizer(self):
        return tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)


class BatchNorm(Classifier):
    def make_model(self):
        return tf.keras.Sequential(
            [
                tf.keras.Input((FEATURES,)),
                tf.keras.layers.Dense(5),
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Dense(CLASSES),
            ]
        )


class Metric(Classifier):
    def build(self):
        super().build()
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

    def train_step(self, batch):
        images, labels = batch
        outputs = super().train_step(batch)
        self.accuracy.update_state(labels, self.model(images, training=False))
        return {**outputs, "accuracy": self.accuracy.result()}


class Functional(Classifier):
    def make_model(self):
        images = tf.keras.Input((FEATURES,))
        hidden = tf.keras.layers.Dense(4, activation="tanh", name="hidden")(images)
        joined = tf.keras.layers.Concatenate()([hidden, tf.keras.layers.Dropout(0.2)(images)])
        return tf.keras.Model(images, tf.keras.layers.Dense(CLASSES)(joined))


class Unbuilt(Classifier):
    """No input shape: the weights exist only after the first call."""

    def make_model(self):
        return tf.keras.Sequential(
            [tf.keras.layers.Dense(5, activation="relu"), tf.keras.layers.Dense(CLASSES)]
        )

    def make_optimizer(self):
        return tf.keras.optimizers.Adam(0.01)


class SubclassedModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(4)]
        self.drop = tf.keras.layers.Dropout(0.2)
        self.head = tf.keras.layers.Dense(CLASSES)

    def call(self, images, training=False):
        for layer in self.hidden:
            images = tf.nn.relu(layer(images))
        return self.head(self.drop(images, training=training))


class Subclassed(Classifier):
    def make_model(self):
        return SubclassedModel()

    def make_optimizer(self):
        return tf.keras.optimizers.Adam(0.01)


class Sonnet(Classifier):
    def make_model(self):
        import sonnet as snt

        return snt.Sequential([snt.Linear(5), tf.nn.relu, snt.Linear(CLASSES)])

    def make_optimizer(self):
        import sonnet as snt

        return snt.optimizers.Momentum(0.1, 0.9)

    def logits(self, images):
        return self.model(images)

    def apply(self, gradients, variables):
        self.optimizer.apply(gradients, variables)


class OldKeras(Classifier):
    def make_model(self):
        import tf_keras

        return tf_keras.Sequential(
            [tf_keras.layers.Dense(5, activation="relu"), tf_keras.layers.Dense(CLASSES)]
        )

    def make_optimizer(self):
        import tf_keras

        return tf_keras.optimizers.Adam(0.01)


class Plain(Classifier):
    """Plain variables, a generator and a hand-written update."""

    def build(self):
        self.weights = {"kernel": tf.Variable(tf.zeros((FEATURES, CLASSES)))}
        self.weights["bias"] = tf.Variable(tf.zeros(CLASSES))
        self.noise = tf.random.Generator.from_seed(5)

    def train_step(self, batch):
        images, labels = batch
        images += 0.1 * self.noise.normal(tf.shape(images))
        images += tf.random.stateless_normal(tf.shape(images), seed=[3, self.step])
        with tf.GradientTape() as tape:
            logits = images @ self.weights["kernel"] + self.weights["bias"]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = list(self.weights.values())
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


class Generated(Classifier):
    """Data of a Python generator: its position cannot be saved."""

    def train_dataset(self):
        images, labels = rows()
        return tf.data.Dataset.from_generator(
            lambda: zip(images, labels, strict=True),
            output_signature=(
                tf.TensorSpec((FEATURES,), tf.float32),
                tf.TensorSpec((), tf.int64),
            ),
        ).batch(9)


class Numbered(Classifier):
    """Data that are addressed by number; the last batch of each pass is short."""

    def train_dataset(self):
        return trainer.data.Indexed(rows(), batch_size=9, drop_remainder=False)


class Augmented(Classifier):
    """Noise from the batch's own seed."""

    def train_dataset(self):
        def noisy(batch, seed):
            images, labels = batch
            return images + tf.random.stateless_normal(tf.shape(images), seed), labels

        return trainer.data.Indexed(rows(), batch_size=8, seed=5, map_fn=noisy)


def in_a_file(name, write):
    """Returns the path of a file in a temporary folder, written once."""
    path = os.path.join(tempfile.gettempdir(), f"unbroken-{os.getpid()}-{name}")
    if not os.path.exists(path):
        write(path)
        atexit.register(os.unlink, path)
    return path


class Records(Classifier):
    """Fixed-length records in a file that is mapped into memory."""

    def train_dataset(self):
        images, labels = rows()

        def write(path):
            with open(path, "wb") as file:
                for image, label in zip(images, labels, strict=True):
                    file.write(image.tobytes() + label.tobytes())

        def parts(content):
            images = tf.bitcast(tf.reshape(content[:, :-8], [-1, FEATURES, 4]), tf.float32)
            return images, tf.bitcast(content[:, -8:], tf.int64)

        path = in_a_file("records", write)
        records = trainer.data.FixedLengthRecords(path, 4 * FEATURES + 8, parts)
        return trainer.data.Indexed(records, batch_size=8)


class Interleaved(Classifier):
    """Files read by turns, in parallel, and shuffled."""

    def train_dataset(self):
        images, labels = rows()

        def write(first):
            def act(path):
                with tf.io.TFRecordWriter(path) as writer:
                    for row in range(first, first + 10):
                        writer.write(images[row].tobytes() + labels[row].tobytes())

            return act

        def parse(record):
            content = tf.io.decode_raw(record, tf.uint8)
            image = tf.bitcast(tf.reshape(content[:-8], [FEATURES, 4]), tf.float32)
            return image, tf.bitcast(content[-8:], tf.int64)

        paths = [in_a_file(f"tfrecord-{first}", write(first)) for first in range(0, ROWS, 10)]
        files = tf.data.Dataset.from_tensor_slices(paths)
        records = files.interleave(
            tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2, deterministic=True
        )
        return records.map(parse).shuffle(20).batch(9).repeat().prefetch(2)


class Loader:
    """An iterable whose iterators keep a state that can be set, as stateful loaders do."""

    def __iter__(self):
        return LoaderIterator()


class LoaderIterator:
    """Batches of eight rows in order, one pass."""

    def __init__(self):
        self._next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self._next == ROWS:
            raise StopIteration
        images, labels = rows()
        self._next += 8
        return images[self._next - 8 : self._next], labels[self._next - 8 : self._next]

    def get_state(self):
        return {"next": self._next}

    def set_state(self, state):
        self._next = state["next"]


class Loaded(Classifier):
    """A Python loader with a state."""

    def train_dataset(self):
        return Loader()


PROGRAMS = {
    cls.__name__: cls
    for cls in (
        Summing,
        Classifier,
        Momentum,
        Adam,
        Schedule,
        Ema,
        LossScale,
        Accumulation,
        BatchNorm,
        Metric,
        Functional,
        Unbuilt,
        Subclassed,
        Sonnet,
        OldKeras,
        Plain,
        Generated,
        Numbered,
        Augmented,
        Records,
        Interleaved,
        Loaded,
    )
}


class Counted(Summing):
    """The summing program with a count of traces of its own."""

    traces = 0


PROGRAMS_OF_TESTS = {**PROGRAMS, "Counted": Counted}
HOOKS = {}


def values(program):
    """Returns the scalars of a program's state, for tests that name a number."""
    return {
        name: float(tensor)
        for name, tensor in program.state().items()
        if tensor.shape.rank == 0 and tensor.dtype.is_floating
    }
