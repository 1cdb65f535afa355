"""Weather: wind and fuel moisture while a fire burns, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["CLIMATES", "Climate", "Weather"]


@dataclass(frozen=True)
class Weather:
    """The weather of one fire. Moistures are fractions of the dry weight."""

    wind_kmh: float = 15.0  # 20 ft (6 m) above the vegetation
    wind_from: float = 270.0  # degrees clockwise from north
    dead_1h: float = 0.05
    dead_10h: float = 0.06
    dead_100h: float = 0.08
    live_herbs: float = 0.6
    live_wood: float = 0.9

    @property
    def moistures(self) -> tuple[float, float, float, float, float]:
        """Moistures in the order of the fuel classes."""
        return self.dead_1h, self.dead_10h, self.dead_100h, self.live_herbs, self.live_wood


@dataclass(frozen=True)
class Climate:
    """The distribution of weather: prevailing wind and dryness, each with its spread."""

    wind_kmh: float
    wind_kmh_spread: float
    dead_1h: float
    live_herbs: float
    live_wood: float
    wind_from: float = 270.0
    wind_from_spread: float = 25.0
    moisture_spread: float = 0.1  # common factor of all moistures

    def draw(self, generator: np.random.Generator) -> Weather:
        """Draw the weather of one fire, rounded as in a weather report."""
        wind = max(0.0, generator.normal(self.wind_kmh, self.wind_kmh_spread))
        wind_from = generator.normal(self.wind_from, self.wind_from_spread) % 360
        wetness = min(1.5, max(0.5, generator.normal(1.0, self.moisture_spread)))
        dead = self.dead_1h * wetness
        return Weather(
            round(wind, 1),
            round(wind_from, 0) % 360,
            *(round(moisture, 3) for moisture in (dead, dead + 0.01, dead + 0.03)),
            *(round(moisture * wetness, 2) for moisture in (self.live_herbs, self.live_wood)),
        )


CLIMATES = {
    "low": Climate(wind_kmh=9.0, wind_kmh_spread=2.0, dead_1h=0.07, live_herbs=0.8, live_wood=1.1),
    "medium": Climate(wind_kmh=13.0, wind_kmh_spread=3.0, dead_1h=0.06, live_herbs=0.65, live_wood=0.9),
    "high": Climate(wind_kmh=17.0, wind_kmh_spread=4.0, dead_1h=0.045, live_herbs=0.55, live_wood=0.75),
}
