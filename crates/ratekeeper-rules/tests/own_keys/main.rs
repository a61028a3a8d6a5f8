//! Ratekeeper's own keys.

mod adjust;
mod ids;
mod level_plans;
mod limits;
mod overrides_of_budgets;
mod overrides_of_paths;
mod overrides_of_regions;
mod plans;
mod policies;
mod regions;
mod service_levels;
mod support;
mod usage;
