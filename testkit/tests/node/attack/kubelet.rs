//! Races of pods, configs, restarts and kills.
