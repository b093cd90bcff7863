//! Who is held against what, and on how many cases.

use seam_algebra::Family;
use seam_algebra::laws::{Law, OracleSubject, Subject};

/// A subject with the laws that are tried on it.
pub(super) struct Job {
    pub(super) family: &'static dyn Family,
    pub(super) subject: Box<dyn Subject + Send>,
    /// All laws with their cases; none for those that say nothing about the family.
    pub(super) laws: Vec<(Law, usize)>,
}

/// A family without a kernel has only its oracle.
pub(super) struct Plan {
    /// Family by family, the oracle first.
    pub(super) jobs: Vec<Job>,
}

impl Plan {
    /// Of families with the device's subjects of each. `cases` in all are divided over the pairs of subjects and laws that
    /// say something: the first get one more where it does not come out even, and each gets at least one.
    pub(super) fn new(
        families: &[&'static dyn Family],
        mut on_device: impl FnMut(&'static dyn Family) -> Vec<Box<dyn Subject + Send>>,
        cases: usize,
    ) -> Self {
        let mut jobs = Vec::new();
        for &family in families {
            let oracle: Box<dyn Subject + Send> = Box::new(OracleSubject::new(family));
            for subject in std::iter::once(oracle).chain(on_device(family)) {
                jobs.push(Job { family, subject, laws: Law::ALL.map(|law| (law, 0)).to_vec() });
            }
        }
        let mut pairs: Vec<&mut usize> = Vec::new();
        for job in &mut jobs {
            let says = |law: Law| law.silent_on(job.family).is_none();
            pairs.extend(job.laws.iter_mut().filter(|(law, _)| says(*law)).map(|(_, cases)| cases));
        }
        let (each, more) = (cases / pairs.len().max(1), cases % pairs.len().max(1));
        for (i, pair) in pairs.into_iter().enumerate() {
            *pair = (each + usize::from(i < more)).max(1);
        }
        Self { jobs }
    }

    /// Cases that will be run; a subject may take fewer of a law than it is given.
    pub(super) fn cases(&self) -> usize {
        let of = |job: &Job| {
            let most = job.subject.limits().max_cases;
            job.laws.iter().map(|(_, cases)| (*cases).min(most)).sum::<usize>()
        };
        self.jobs.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seam_algebra::families::by_name;

    #[test]
    fn cases_are_divided_over_what_says_something() {
        // No convolution of its own: one law says nothing.
        let families = [by_name("gla").unwrap(), by_name("kda").unwrap()];
        let laws = Law::ALL.len();
        let pairs = 2 * laws - 1;
        for cases in [1, pairs, 100, 1000] {
            let plan = Plan::new(&families, |_| Vec::new(), cases);
            let given: Vec<usize> = plan.jobs.iter().flat_map(|job| job.laws.iter().map(|(_, n)| *n)).collect();
            assert_eq!(given.iter().filter(|n| **n == 0).count(), 1);
            let (least, most) = (given.iter().filter(|n| **n > 0).min(), given.iter().max());
            assert!(least.is_some_and(|least| most.is_some_and(|most| most - least <= 1)), "{given:?}");
            assert_eq!(given.iter().sum::<usize>(), cases.max(pairs));
            assert_eq!(plan.cases(), cases.max(pairs));
        }
    }

    #[test]
    fn the_oracle_comes_first_and_subjects_stand_family_by_family() {
        let families = [by_name("gla").unwrap(), by_name("kda").unwrap()];
        let subject = |family| -> Box<dyn Subject + Send> { Box::new(OracleSubject::new(family)) };
        let plan = Plan::new(&families, |family| vec![subject(family), subject(family)], 9);
        let names: Vec<&str> = plan.jobs.iter().map(|job| job.family.name()).collect();
        assert_eq!(names, ["gla", "gla", "gla", "kda", "kda", "kda"]);
        assert!(Plan::new(&[], |_| Vec::new(), 9).jobs.is_empty());
    }
}
