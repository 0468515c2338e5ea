"""MiniCircle and MiniRun: a planar point robot with inertia and drag.

Rewards and costs follow the Circle and Run families of Bullet-Safety-Gym, without an agent term:
    Circle: 0.1 <p, v_perp> / (1 + | |p| - radius |), cost 1 where |x| > 6
    Run:    60 x metres of progress towards a point 1000 m away, cost 1 where |y| > 2 or speed > 2.5
"""

import jax
import jax.numpy as jnp
import numpy as np

from safestitch.data.edits import clip_cost
from safestitch.envs.base import Task, roll_behaviours
from safestitch.episodes import Episodes
from safestitch.records import Picture, Spec

STEP_SECONDS = 0.1
THRUST = 8.0  # m/s^2 at full action, per axis
DRAG = 1.6  # 1/s, so that full thrust along one axis tends to 5 m/s

CIRCLE_RADIUS = 7.0
CIRCLE_X_LIMIT = 6.0
RUN_Y_LIMIT = 2.0
RUN_SPEED_LIMIT = 2.5
RUN_GOAL = np.array([1000.0, 0.0], np.float32)

CIRCLE = Spec("MiniCircle", obs_dim=4, act_dim=2, horizon=200, cost_range=60.0)
RUN = Spec("MiniRun", obs_dim=3, act_dim=2, horizon=100, cost_range=80.0)


def _move(state, action):
    """Semi-implicit Euler step of the point robot; state is (x, y, vx, vy)."""
    position, velocity = state[:2], state[2:]
    action = jnp.clip(action, -1.0, 1.0)
    velocity = velocity + STEP_SECONDS * (THRUST * action - DRAG * velocity)
    return jnp.concatenate([position + STEP_SECONDS * velocity, velocity])


def _steer(state, wanted_velocity):
    """The action that reaches a velocity within one step if thrust allows, drag included."""
    velocity = state[2:]
    force = (wanted_velocity - velocity) / STEP_SECONDS + DRAG * velocity
    action = force / THRUST
    return action / jnp.maximum(1.0, jnp.abs(action).max())  # keeps the direction


# --- MiniCircle -------------------------------------------------------------------------------


def circle_reset(key):
    """At rest, anywhere in the middle."""
    position = jax.random.uniform(key, (2,), minval=-4.0, maxval=4.0)
    return jnp.concatenate([position, jnp.zeros(2)])


def circle_step(state, action):
    """Reward for speed along the circle, cost 1 outside the strip |x| <= 6."""
    after = _move(state, action)
    x, y, vx, vy = after
    distance = jnp.hypot(x, y)
    along = x * vy - y * vx  # <p, v_perp>: counter-clockwise speed times distance
    reward = 0.1 * along / (1.0 + jnp.abs(distance - CIRCLE_RADIUS))
    cost = (jnp.abs(x) > CIRCLE_X_LIMIT).astype(jnp.float32)
    return after, reward, cost, jnp.asarray(False)


def circle_behaviour(parameters, state, t, key):
    """Chase a point ahead on the circle, clipped to a strip: careful before a switch, bold after.

    Parameters: radius, careful half-width, bold half-width, switch step, speed, look-ahead angle,
    action noise, and whether the bold part comes first.
    """
    radius, careful, bold, switch, speed, ahead, noise, bold_first = parameters
    is_bold = jnp.where(bold_first > 0.5, t < switch, t >= switch)
    half_width = jnp.where(is_bold, bold, careful)
    angle = jnp.arctan2(state[1], state[0]) + ahead
    aim = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    aim = aim.at[0].set(jnp.clip(aim[0], -half_width, half_width))
    to_aim = aim - state[:2]
    wanted = speed * to_aim / jnp.maximum(jnp.linalg.norm(to_aim), 1e-3)
    return _steer(state, wanted) + noise * jax.random.normal(key, (2,))


def circle_data(seed: int, episodes: int = 1200) -> Episodes:
    """Scripted episodes from timid to reckless, from clumsy to skilled."""
    rng = np.random.default_rng(seed)
    skilled = rng.uniform(size=episodes) < 0.4
    switch = rng.uniform(0, 200, episodes)
    switch[rng.uniform(size=episodes) < 0.25] = 200.0  # one kind throughout
    parameters = np.stack(
        [
            np.where(skilled, 7.0, rng.uniform(3.0, 7.5, episodes)),
            np.where(skilled, rng.uniform(5.2, 5.9, episodes), rng.uniform(3.0, 6.2, episodes)),
            np.where(skilled, rng.uniform(6.2, 7.5, episodes), rng.uniform(6.0, 8.0, episodes)),
            switch,
            np.where(skilled, rng.uniform(4.2, 5.5, episodes), rng.uniform(0.3, 5.0, episodes)),
            np.where(skilled, rng.uniform(0.3, 0.5, episodes), rng.uniform(0.2, 0.9, episodes)),
            np.where(skilled, rng.uniform(0, 0.15, episodes), rng.uniform(0, 0.6, episodes)),
            rng.uniform(size=episodes) < 0.5,
        ],
        axis=1,
    ).astype(np.float32)
    start_key, noise_key = jax.random.split(jax.random.key(seed))
    starts = jax.vmap(circle_reset)(jax.random.split(start_key, episodes))
    made = roll_behaviours(
        circle_step,
        lambda state: state,
        circle_behaviour,
        starts,
        jnp.asarray(parameters),
        CIRCLE.horizon,
        noise_key,
    )
    return clip_cost(made, CIRCLE.cost_range)


_ANGLES = np.linspace(0, 2 * np.pi, 73)
MINI_CIRCLE = Task(
    spec=CIRCLE,
    reset=circle_reset,
    observe=lambda state: state,
    step=circle_step,
    make_data=circle_data,
    position=lambda state: state[:2],
    picture=Picture(
        x_label="x (m)",
        y_label="y (m)",
        zones=(
            (-np.inf, -CIRCLE_X_LIMIT, -np.inf, np.inf),
            (CIRCLE_X_LIMIT, np.inf, -np.inf, np.inf),
        ),
        zone_label="|x| > 6 m costs 1 a step",
        guide=tuple(
            (CIRCLE_RADIUS * float(np.cos(a)), CIRCLE_RADIUS * float(np.sin(a))) for a in _ANGLES
        ),
    ),
)


# --- MiniRun ----------------------------------------------------------------------------------


def run_reset(key):
    """At the start line, somewhere across the lane, at rest."""
    y = jax.random.uniform(key, (), minval=-1.5, maxval=1.5)
    return jnp.stack([0.0, y, 0.0, 0.0])


def run_observe(state):
    """(y, vx, vy): how far the robot has come does not matter to what it should do."""
    return state[1:]


def run_step(state, action):
    """Reward for progress, cost 1 off the lane or above the speed limit (both at once: 1)."""
    after = _move(state, action)
    before_goal = jnp.linalg.norm(RUN_GOAL - state[:2])
    after_goal = jnp.linalg.norm(RUN_GOAL - after[:2])
    speed = jnp.linalg.norm(after[2:])
    cost = (jnp.abs(after[1]) > RUN_Y_LIMIT) | (speed > RUN_SPEED_LIMIT)
    return after, 60.0 * (before_goal - after_goal), cost.astype(jnp.float32), jnp.asarray(False)


def run_behaviour(parameters, state, t, key):
    """Hold a lane at a careful speed, and at a bold speed between two steps.

    Parameters: lane, careful speed, bold speed, first and last bold step, action noise, wobble.
    """
    lane, careful, bold, first, last, noise, wobble = parameters
    speed = jnp.where((t >= first) & (t < last), bold, careful)
    sideways = jnp.clip(lane - state[1] + wobble * jnp.sin(0.3 * t), -1.0, 1.0)
    wanted = jnp.stack([jnp.sqrt(jnp.maximum(speed**2 - sideways**2, 0.01)), sideways])
    return _steer(state, wanted) + noise * jax.random.normal(key, (2,))


def run_data(seed: int, episodes: int = 1200) -> Episodes:
    """Scripted episodes from crawling to speeding, from straight to swerving."""
    rng = np.random.default_rng(seed)
    skilled = rng.uniform(size=episodes) < 0.4
    bold_steps = np.where(rng.uniform(size=episodes) < 0.25, 0, rng.uniform(0, 85, episodes))
    first = np.where(skilled, 0.0, rng.uniform(size=episodes) * (100 - bold_steps))
    parameters = np.stack(
        [
            np.where(skilled, rng.uniform(-0.5, 0.5, episodes), rng.uniform(-2.4, 2.4, episodes)),
            np.where(skilled, rng.uniform(2.1, 2.4, episodes), rng.uniform(0.3, 2.4, episodes)),
            np.where(skilled, rng.uniform(4.3, 5.0, episodes), rng.uniform(1.0, 5.0, episodes)),
            first,
            first + bold_steps,
            np.where(skilled, rng.uniform(0, 0.08, episodes), rng.uniform(0, 0.5, episodes)),
            np.where(skilled, 0.0, rng.uniform(0, 2.0, episodes)),
        ],
        axis=1,
    ).astype(np.float32)
    start_key, noise_key = jax.random.split(jax.random.key(seed))
    starts = jax.vmap(run_reset)(jax.random.split(start_key, episodes))
    made = roll_behaviours(
        run_step,
        run_observe,
        run_behaviour,
        starts,
        jnp.asarray(parameters),
        RUN.horizon,
        noise_key,
    )
    return clip_cost(made, RUN.cost_range)


MINI_RUN = Task(
    spec=RUN,
    reset=run_reset,
    observe=run_observe,
    step=run_step,
    make_data=run_data,
    position=lambda state: state[:2],
    picture=Picture(
        x_label="x (m)",
        y_label="y (m)",
        zones=((-np.inf, np.inf, RUN_Y_LIMIT, np.inf), (-np.inf, np.inf, -np.inf, -RUN_Y_LIMIT)),
        zone_label="|y| > 2 m, or speed above 2.5 m/s, costs 1 a step",
    ),
)
