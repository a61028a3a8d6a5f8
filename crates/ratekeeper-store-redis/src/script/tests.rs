use super::{Clock, Script};

#[test]
fn every_place_of_the_script_is_filled() {
    for clock in [Clock::Server, Clock::Told] {
        let script = Script::new(clock);
        assert!(!script.text().contains("--"), "{}", script.text());
        assert_eq!(script.sha1().len(), 40);
    }
}
