//! Certificates for the pairs of `tests/cases`: what is right gets one that is accepted, what is wrong gets none.

use std::fs::read_to_string;
use std::path::PathBuf;

use verilocc_certify::{certify, Judged};
use verilocc_check::audit::audit;
use verilocc_check::model::{Done, Function};
use verilocc_check::text;

/// Of a case: both texts, and the target.
fn case(name: &str) -> (String, String, String) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let [before, after] =
        ["before", "after"].map(|side| read_to_string(folder.join(format!("{name}.{side}.mir"))).unwrap());
    let target = before.split_once("target: ").unwrap().1.split(';').next().unwrap().to_string();
    (before, after, target)
}

/// A certificate of each function of a case.
fn made(name: &str) -> Vec<Done<Judged>> {
    let (before, after, target) = case(name);
    let (p, q) = (text::read(&before).unwrap(), text::read(&after).unwrap());
    let make = |function: &Function| certify([p.clone(), q.clone()], &target, Some(&function.name), false);
    p.functions.iter().map(make).collect()
}

const RIGHT: [&str; 5] = [
    "right_dpp_made_anew_after_a_branch", "right_foreign_atomic_scan_loop", "right_foreign_many_classes",
    "right_lane_is_first_set_bit", "right_readlane_of_a_thread_that_waits",
];

#[test]
fn what_is_right_gets_a_certificate_that_is_accepted_as_text() {
    for name in RIGHT {
        let (before, after, target) = case(name);
        for judged in made(name) {
            let judged = judged.unwrap_or_else(|error| panic!("{name}: {error}"));
            let function = judged.text().lines().nth(1).unwrap().strip_prefix("function ").unwrap().to_string();
            let again = audit(&before, &after, judged.text(), &target, Some(&function));
            assert!(judged.is_accepted(), "{name}");
            assert_eq!(judged.answer(), again, "{name}");
        }
    }
}

#[test]
fn the_same_texts_get_the_same_certificate() {
    for name in RIGHT {
        for (one, other) in made(name).into_iter().zip(made(name)) {
            assert_eq!(one.unwrap().text(), other.unwrap().text(), "{name}");
        }
    }
}

#[test]
fn what_is_wrong_gets_none_that_is_accepted() {
    let names = [
        "added_another_copy_in_a_bracket",
        "calls_custom_mask_callee_saved",
        "registers_branch_between_empty_blocks_folded",
        "registers_pseudo_move_over_its_source",
    ];
    for name in names {
        let accepted = |judged: Done<Judged>| judged.is_ok_and(|judged| judged.is_accepted());
        assert!(!made(name).into_iter().all(accepted), "{name}");
    }
}

#[test]
fn an_unknown_processor_or_function_is_no_fault_of_the_texts() {
    let (before, after, _) = case(RIGHT[0]);
    let (p, q) = (text::read(&before).unwrap(), text::read(&after).unwrap());
    for (cpu, function) in [("gfx1", None), ("gfx942", Some("nobody"))] {
        let error = certify([p.clone(), q.clone()], cpu, function, false).err().map(|error| error.rule);
        assert_eq!(error, Some(verilocc_check::audit::USAGE));
    }
}
