"""Learns to balance a pole by deep Q-learning: the model makes the data that it is trained on.

    python examples/dqn.py --model_dir=runs/dqn --max_steps=4000
    python -m trainer prove examples/dqn.py:Dqn --steps=300 --kills=3

`train_dataset()` returns an iterator with `get_state()` and `set_state(state)`. For each batch it
lets the model act on eight poles, and draws from what it remembers. All that decides what comes
next is in its state: the poles, the memory, and its random numbers. The weights are not, for the
trainer has them; and no batch is drawn before the step in front of it has ended.

`balanced` is the mean of the latest attempts: some 20 pushes at random, 100 and more when learned.
"""

import base64

import numpy as np
import tensorflow as tf

import trainer

POLES, BATCH, MEMORY = 8, 64, 10_000
DISCOUNT, EXPLORING_BATCHES, LEAST_EXPLORING, COPY_EVERY = 0.95, 500, 0.02, 50
LONGEST = 500  # pushes of one attempt


class Poles:
    """Carts with a pole on each (Barto, Sutton and Anderson, 1983), side by side.

    Attributes:
        state: float64[POLES, 4]: place and speed of the cart, angle and speed of the pole.
        pushes: int64[POLES]: pushes since the pole was set upright.
    """

    def __init__(self, random):
        self._random = random
        self.state = self._upright()
        self.pushes = np.zeros(POLES, np.int64)

    def push(self, right):
        """Pushes each cart for a fiftieth of a second.

        Args:
            right: bool[POLES]: the direction.

        Returns:
            The state after it, who fell, and whose attempt is over: these are set upright.
        """
        _, speed, angle, turning = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (np.where(right, 10.0, -10.0) + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        pull = pushed - 0.05 * turn * cosine / 1.1
        after = self.state + 0.02 * np.stack([speed, pull, turning, turn], axis=1)
        self.pushes += 1
        fell = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > np.radians(12))
        over = fell | (self.pushes == LONGEST)
        self.state = np.where(over[:, np.newaxis], self._upright(), after)
        return after, fell, over

    def _upright(self):
        return self._random.uniform(-0.05, 0.05, (POLES, 4))


class Experience:
    """Batches of transitions that a model makes by acting; an iterator without an end.

    Args:
        model: from observations, float32[B, 4], to the value of each action, float32[B, 2].
        seed: of the poles, of the exploration and of what is remembered when.
    """

    def __init__(self, model, seed):
        self._model = model
        self._random = np.random.default_rng(seed)
        self._poles = Poles(self._random)
        self._memory = np.zeros((MEMORY, 11), np.float32)  # before, action, reward, after, fell
        self._acted = 0  # times
        self._balanced = [0]  # pushes in the latest attempts

    def __iter__(self):
        return self

    def __next__(self):
        self._act()
        remembered = min(self._acted * POLES, MEMORY)
        chosen = self._memory[self._random.integers(0, remembered, BATCH)]
        return {
            "before": chosen[:, :4],
            "action": chosen[:, 4].astype(np.int32),
            "reward": chosen[:, 5],
            "after": chosen[:, 6:10],
            "fell": chosen[:, 10],
            "balanced": np.float32(np.mean(self._balanced)),
        }

    def _act(self):
        """Lets the model act, now and then at random, and remembers what came of it."""
        before = self._poles.state
        values = self._model(before.astype(np.float32), training=False)
        action = np.argmax(values, axis=1)
        exploring = max(LEAST_EXPLORING, 1.0 - self._acted / EXPLORING_BATCHES)
        at_random = self._random.uniform(size=POLES) < exploring
        action = np.where(at_random, self._random.integers(0, 2, POLES), action)
        pushes = self._poles.pushes + 1
        after, fell, over = self._poles.push(action == 1)
        rows = np.arange(self._acted * POLES, (self._acted + 1) * POLES) % MEMORY
        self._memory[rows] = np.column_stack([before, action, np.ones(POLES), after, fell])
        self._acted += 1
        self._balanced = [*self._balanced, *pushes[over].tolist()][-20:]
        self._poles.pushes[over] = 0

    def get_state(self):
        """Returns all that decides the next batches but for the model, as JSON knows it."""
        used = self._memory[: self._acted * POLES]
        return {
            "random": self._random.bit_generator.state,
            "poles": self._poles.state.tolist(),
            "pushes": self._poles.pushes.tolist(),
            "memory": base64.b64encode(used.tobytes()).decode(),
            "acted": self._acted,
            "balanced": self._balanced,
        }

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        self._random.bit_generator.state = state["random"]
        self._poles.state = np.array(state["poles"])
        self._poles.pushes = np.array(state["pushes"])
        used = np.frombuffer(base64.b64decode(state["memory"]), np.float32).reshape(-1, 11)
        self._memory[: len(used)] = used
        self._acted, self._balanced = state["acted"], state["balanced"]


def make_model():
    """Returns a model from observations to the value of each action."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((4,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(2),
        ]
    )


class Dqn(trainer.Trainer):
    """Double Q-learning with a second model that follows the first every 50 steps."""

    def build(self):
        self.model = make_model()
        self.target = make_model()
        self.target.set_weights(self.model.get_weights())
        self.optimizer = tf.keras.optimizers.Adam(1e-3)
        self.optimizer.build(self.model.trainable_variables)

    def train_dataset(self):
        return Experience(self.model, seed=1)

    def train_step(self, batch):
        best = tf.argmax(self.model(batch["after"]), axis=1)
        then = tf.gather(self.target(batch["after"]), best, batch_dims=1)
        aim = batch["reward"] + DISCOUNT * (1.0 - batch["fell"]) * then
        with tf.GradientTape() as tape:
            values = self.model(batch["before"], training=True)
            taken = tf.gather(values, batch["action"], batch_dims=1)
            loss = tf.reduce_mean(tf.keras.losses.huber(aim[:, tf.newaxis], taken[:, tf.newaxis]))
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        tf.cond((self.step + 1) % COPY_EVERY == 0, self.follow, lambda: None)
        return {"loss": loss, "balanced": batch["balanced"]}

    def follow(self):
        """Copies the model to the target."""
        for mine, theirs in zip(self.target.weights, self.model.weights, strict=True):
            mine.assign(theirs)


if __name__ == "__main__":
    trainer.app.run(Dqn, hooks=lambda: [trainer.LogProgress(every_steps=250)])
