"""Programs that tests train, in this process or in one of their own."""

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
