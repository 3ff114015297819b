"""What stands behind each promise of SECURITY.md: the attack that tries it, the figure that is seen, the tests.

``python -m tests.evidence`` prints the table that the documentation shows; ``python -m tests.evidence --run`` runs all
tests that it names, promise after promise, and prints what became of each (``make evidence``). The tests check that no
promise lacks a row, and that every test that is named exists.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutation.table import MUTANTS

ROOT = Path(__file__).resolve().parents[1]
_PROMISE = re.compile(r"^- \*\*(.+?)\.\*\*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A promise by the name that it has in SECURITY.md, and one attack on it; ``tests`` are pytest's node ids."""

    promise: str
    attack: str
    figure: str
    tests: tuple[str, ...]

    @property
    def faults(self) -> int:
        """Return how many planted faults of the package one of the tests must notice."""
        return sum(bool(set(map(_plain, one.tests)) & set(self.tests)) for one in MUTANTS)

    @property
    def command(self) -> str:
        """Return what runs the tests."""
        return f"pytest {' '.join(self.tests)}"


def _plain(node: str) -> str:
    """Return a test's id without its parameters."""
    return node.partition("[")[0]


def _of(folder: str, *names: str) -> tuple[str, ...]:
    """Return node ids; a name is file::test below a folder of the tests, or a test of the file before."""
    file, nodes = "", []
    for name in names:
        file, test = name.split("::") if "::" in name else (file, name)
        nodes.append(f"tests/{folder}/{file}.py::{test}")
    return tuple(nodes)


ROWS = (
    Evidence(
        "Noise",
        "draws against both distributions: chi-square over all cells at six scales, low bits, mean and variance",
        "10^8 draws each, p above 0.001 everywhere; a scale 1 % too small, OpenDP 0.14.1's bias and a sampler of 16 "
        "bits are rejected",
        _of(
            "privacy",
            "test_exact_distribution::test_a_hundred_million_draws_follow_the_law",
            "test_the_chi_square_rejects_the_bias_of_opendp_0_14_1",
            "test_the_chi_square_rejects_a_scale_that_is_one_per_cent_small",
            "test_the_chi_square_rejects_a_sampler_of_sixteen_bits",
            "test_referees::test_our_samplers_pass_the_matrix",
        ),
    ),
    Evidence(
        "Noise",
        "every threshold against decimal arithmetic, bit streams on both sides of thresholds, every root cell",
        "100,000 thresholds equal, 10,000 boundary streams on their side, all 65,536 cells",
        _of(
            "privacy",
            "test_exact_thresholds::test_one_hundred_thousand_thresholds_equal_decimal_arithmetic",
            "test_every_root_cell_says_what_all_its_numbers_decide",
            "test_exact_sampler::test_ten_thousand_boundary_streams_fall_on_their_side",
            "test_ties_of_any_symbol_are_settled_by_its_own_further_bits",
        ),
    ),
    Evidence(
        "Noise",
        "one stream for two regions, queries, chunks, threads, forks or processes",
        "no two equal or correlated; a fork that goes on is refused",
        _of(
            "privacy",
            "test_exact_stream::test_every_part_of_the_name_changes_the_noise",
            "test_the_place_reached_is_not_cloned_by_a_fork",
            "test_threads_compute_the_same_cells_and_share_out_the_next_ones",
            "test_words_are_counter_mode_at_byte_two_width_cell",
            "test_noise::test_a_stream_is_handed_out_once",
        ),
    ),
    Evidence(
        "Noise",
        "OpenDP's matrix of sampler tests on our distributions, and OpenDP's own draws as a referee",
        "Wilson intervals, chi-square, symmetry, log-ratios, tails, moments and extremes at six scales of each",
        _of(
            "privacy",
            "test_referees::test_our_samplers_pass_the_matrix",
            "test_planted_samplers_fail_the_matrix",
            "test_the_matrix_takes_opendps_own_draws",
        ),
    ),
    Evidence(
        "Integers",
        "a float between a count and its noisy value: in the source, in compiled types, in arrays",
        "none on the path; floats are refused, as is a value that may leave 64 bits",
        _of(
            "privacy",
            "test_exact_sampler::test_no_float_is_written_on_the_path",
            "test_no_compiled_variable_is_a_float",
            "test_noise::test_only_integers_one_a_cell_are_given_noise",
            "test_a_scale_is_rounded_up_only_and_by_one_step_at_most",
            "test_opendp_is_asked_for_no_less_noise_than_is_stated",
        ),
    ),
    Evidence(
        "Leftover keys",
        "18 states in which a process can die or a copy can bring a key back, then each of 11 commands, for every kind",
        "keys of measured, forgotten and given-up runs are gone and reported, no other is touched; where the ledger "
        "is in doubt nothing is deleted",
        _of(
            "releases",
            "test_spent_keys::test_whichever_command_comes_next_erases_what_is_spent_and_nothing_else",
            "test_no_run_is_called_measured_before_its_key_is_gone",
            "test_a_key_that_cannot_be_erased_is_reported_and_nothing_is_paid_next_to_it",
            "test_a_key_is_left_where_the_seal_is_damaged_until_the_run_is_given_up",
            "test_a_damaged_seal_that_is_moved_away_is_made_again_to_the_byte",
            "test_a_run_is_not_given_up_next_to_one_that_the_ledger_does_not_know",
            "test_a_run_that_another_process_works_on_keeps_its_key",
            "test_a_forgotten_run_still_proves_that_a_ledger_is_older",
        ),
    ),
    Evidence(
        "Looks",
        "the look deleted, forgotten, damaged, exchanged, not given, or cut out of a published measurement",
        "the cost of both is stated, or the damaged file is named; verify with the ledger finds the cut",
        _of(
            "releases",
            "test_look_cost::test_a_published_measurement_states_its_look_which_is_read_where_it_is_given",
            "test_a_run_without_its_look_states_the_cost_of_both",
            "test_a_damaged_measurement_of_either_is_refused_by_name",
            "test_a_look_of_other_answers_is_another_measurement_whose_cost_adds",
            "test_a_look_that_is_cut_out_of_a_published_measurement_shows_by_the_ledger",
        ),
    ),
    Evidence(
        "Composition",
        "brute force over all outcomes, sixty digits, and dp-accounting on random compositions",
        "never below the optimistic bound, at most 0.1 % above the pessimistic one; rounded up in the last digit",
        _of(
            "privacy",
            "test_loss_distributions::test_delta_is_at_least_brute_force_and_hardly_more",
            "test_all_ways_to_change_answers_within_a_sensitivity_are_covered",
            "test_random_compositions_lie_between_outside_bounds",
            "test_accounting::test_every_conversion_is_rounded_in_the_safe_direction",
            "test_tight_is_the_infimum_over_orders",
        ),
    ),
    Evidence(
        "Neighbours",
        "all small pairs and 100,000 random ones: how far answers of a level move",
        "never above the stated sensitivity, L1 and L2, and reached",
        (
            *_of(
                "groups",
                "test_queries::test_sensitivities_are_reached_and_never_exceeded",
                "test_sensitivities_on_a_hundred_thousand_random_pairs",
                "test_buckets_and_splits_of_twenty_thousand_random_pairs",
            ),
            *_of("ranges", "test_universal::test_sensitivities_are_those_of_all_neighbours"),
            *_of("topdown", "test_queries::test_a_person_changes_all_regions_of_a_level_by_no_more_than_is_paid_for"),
        ),
    ),
    Evidence(
        "Neighbours",
        "the loss meter: neighbours through the command line under the same noisy answers, and the exact loss",
        "no public byte differs; the loss is at most the budget, reached by geometric noise; planted faults are seen",
        _of(
            "loss_meter",
            "test_loss_meter::test_no_byte_differs_and_the_loss_is_what_was_paid",
            "test_no_byte_differs_by_any_question_and_method",
            "test_each_planted_fault_is_seen",
        ),
    ),
    Evidence(
        "Neighbours",
        "outside auditors: dp-recorder replays neighbours of every kind, DP Auditorium bounds delta by a million draws",
        "inputs of noise within the sensitivity, no byte after it differs; not rejected, and half the noise is (left "
        "out where these packages are not installed)",
        _of(
            "audit",
            "test_referees::test_dp_recorder_replays_a_neighbour",
            "test_dp_auditorium_does_not_reject_the_noise_and_rejects_half_of_it",
        ),
    ),
    Evidence(
        "Numbers of groups",
        "a true count in a public file; every neighbour, a group that comes or goes with its entity among them",
        "none published; the stated sensitivities hold and are reached; an audit finds no more than epsilon",
        _of(
            "groups",
            "test_private_counts::test_a_paid_release_keeps_its_promises_and_publishes_no_true_count",
            "test_a_plan_reads_the_hierarchy_alone",
            "test_the_audit_finds_no_more_than_epsilon_and_most_of_it",
            "test_group_counts::test_the_stated_sensitivities_hold_for_every_neighbour",
        ),
    ),
    Evidence(
        "Groups of people",
        "the page's figures for households, and persons of several rows",
        "k times epsilon, k^2 times rho",
        (
            *_of("topdown", "test_persons::test_a_release_hides_people_of_several_rows_and_says_so"),
            *_of("privacy", "test_accounting::test_costs_compose_exactly"),
        ),
    ),
    Evidence(
        "Ids",
        "one person in two spellings, or with a space or any character that nobody sees",
        "one person, or refused with row and column; 4,361 code points, in tables and in names",
        (
            *_of(
                "files",
                "test_regions::test_each_is_refused_in_ids_of_every_table",
                "test_no_name_holds_a_character_that_nobody_sees",
                "test_tables_and_names_have_one_rule",
            ),
            *_of("topdown", "test_persons::test_who_a_row_is_of_is_checked"),
            *_of("groups", "test_entities::test_bad_entities", "test_bad_groups", "test_bad_hierarchy"),
        ),
    ),
    Evidence(
        "Tables of persons",
        "single changes of a person under every query; more rows than the public maximum; invariants under add_remove",
        "distances as stated and reached; refused before the payment",
        _of(
            "topdown",
            "test_queries::test_sensitivities_by_brute_force_over_single_person_changes",
            "test_persons::test_no_neighbours_differ_by_more_and_some_by_as_much",
            "test_noise_is_wider_by_the_rows",
            "test_measurements::test_invariants_need_neighbours_with_the_same_counts",
            "test_constraints::test_a_fact_that_is_said_to_be_in_the_data_and_is_not_is_refused_before_payment",
        ),
    ),
    Evidence(
        "The wall",
        "objects, open files and imports in reach of estimation; the private table deleted before it",
        "nothing private in memory or open; the table is read once, before the seal",
        _of(
            "releases",
            "test_payment::test_nothing_private_is_in_reach_when_estimation_begins",
            "test_the_private_table_is_opened_before_the_seal_only",
            "test_the_private_table_is_read_once",
        ),
    ),
    Evidence(
        "Nothing is paid for a mistake",
        "wrong tables, configurations, solvers, folders and constraints",
        "typed errors with place and code, an empty ledger, and the mended run pays once",
        (
            *_of(
                "releases",
                "test_payment::test_a_mistake_costs_nothing_and_the_mended_run_pays_once",
                "test_an_estimation_that_cannot_work_is_refused_before_the_payment",
                "test_a_folder_that_cannot_be_made_is_refused_before_the_payment",
                "test_release::test_no_truth_beside_a_private_release",
            ),
            *_of("cli", "test_bad_inputs::test_every_bad_input_is_typed_placed_and_free"),
            *_of(
                "topdown",
                "test_constraints::test_check_names_the_rows_that_contradict_public_facilities_and_nothing_else_does",
            ),
        ),
    ),
    Evidence(
        "Nothing is paid for a mistake",
        "drawn small hierarchies and configurations of every kind: empty leaves, single children, no groups, sizes at "
        "the bound, every method, query, noise and solver; a step of estimation, files, page or `verify` that breaks",
        "verified releases, or refusals before the payment (at most 2 %); the command in the message makes a release; "
        "no number that is private is seen",
        _of(
            "releases",
            "test_paid_is_released::test_what_is_paid_for_is_released",
            "test_what_is_paid_for_is_released_in_many_draws",
            "test_what_would_fail_after_the_payment_fails_before",
            "test_the_command_in_the_message_makes_a_release_of_what_was_paid",
            "test_a_rehearsal_sees_no_private_number_of_groups",
            "test_a_plan_says_what_becomes_of_problems_too_large_for_a_solver",
        ),
    ),
    Evidence(
        "The ledger",
        "SIGKILL, ENOSPC, EIO, timers and Ctrl-C at every file operation of groups, tables and ranges "
        "(all of them: `make faults`)",
        "one payment and identical bytes after each, nothing half published",
        _of("releases", "test_faults::test_a_run_stopped_anywhere_goes_on_bit_for_bit"),
    ),
    Evidence(
        "The ledger",
        "fifty simultaneous starts, a kill at any system call, noise of OpenDP",
        "one pays; whole or absent; every kind pays",
        (
            *_of(
                "privacy",
                "test_ledger::test_fifty_concurrent_starts_one_wins",
                "test_killed_at_any_system_call_the_ledger_is_paid_once",
                "test_a_reservation_holds_the_ledger_before_it_reads_it",
            ),
            *_of(
                "releases",
                "test_payment::test_of_concurrent_releases_one_pays",
                "test_every_kind_pays_for_noise_of_opendp",
                "test_a_run_that_died_after_its_seal_draws_nothing",
            ),
        ),
    ),
    Evidence(
        "The ledger",
        "an older, emptied, shortened, edited or exchanged ledger; entries of another copy",
        "each refused, nothing deleted, and going on is free once it is restored",
        (
            *_of(
                "releases",
                "test_attacks::test_an_older_ledger_is_refused_until_the_newest_is_restored",
                "test_an_emptied_ledger_is_refused",
                "test_the_last_entry_cut_off_is_found",
                "test_a_lowered_amount_hashed_again_is_found_for_want_of_the_key",
                "test_another_private_folder_is_refused_by_the_witness",
            ),
            *_of(
                "privacy",
                "test_ledger::test_the_chain_shows_every_change",
                "test_an_entry_of_another_history_does_not_follow",
                "test_an_overdrawn_history_is_refused",
            ),
        ),
    ),
    Evidence(
        "The ledger",
        "two releases of one account whose configs differ in one key of the promise, in either order, and in other "
        "keys; equal words for exact counts of other regions, values or sides; joint promises against all pairs of "
        "tiny data sets; ledgers of the format before",
        "320 of 320 pairs of other promises refused before the payment, 142 of 142 others paid; each joint promise "
        "covers the pairs that all its promises cover",
        (
            *_of(
                "releases",
                "test_promises::test_of_two_promises_the_second_is_refused_before_it_is_paid",
                "test_what_changes_no_promise_is_paid_from_one_account",
                "test_the_weaker_promise_is_accepted_by_a_key_and_stated_with_every_sum",
                "test_groups_tables_and_ranges_of_the_same_persons_share_an_account",
                "test_a_look_and_what_it_chooses_make_one_promise",
                "test_a_voided_payment_promises_nothing",
                "test_a_release_states_its_promise_and_another_was_not_paid",
            ),
            *_of(
                "privacy",
                "test_budget::test_neighbours_of_a_joint_promise_are_neighbours_of_all",
                "test_what_an_account_admits_leaves_its_neighbours_as_they_are",
            ),
        ),
    ),
    Evidence(
        "Bookkeeping",
        "a flipped bit in any file, links, foreign owners, open modes, a power cut after any name",
        "1,000 pairs of a flip and a command: found or without effect, none silent in public; contents and names "
        "durable before the call ends",
        (
            *_of(
                "releases",
                "test_bit_flips::test_a_flipped_bit_is_found_or_without_effect",
                "test_attacks::test_links_are_refused",
                "test_links_within_a_run_are_refused",
                "test_a_foreign_owner_is_refused",
                "test_what_others_may_read_is_refused",
            ),
            *_of(
                "privacy",
                "test_private_files::test_a_private_file_is_on_disk_before_its_name_and_its_name_before_the_call_ends",
                "test_what_is_erased_is_overwritten_on_disk_before_its_name_goes",
                "test_a_private_folder_is_its_owners_and_its_name_is_durable",
                "test_a_ledgers_file_is_durable_before_anything_is_paid",
            ),
        ),
    ),
    Evidence(
        "What is public is bound",
        "a weaker epsilon, promise, scale or receipt, an edited, deleted or foreign file, sealed again or not",
        "each found by verify, or by verify with the ledger",
        _of(
            "releases",
            "test_attacks::test_an_edited_manifest_is_found",
            "test_an_edited_estimate_a_deleted_and_a_foreign_file_are_found",
            "test_a_receipt_of_another_payment_is_found",
            "test_verify_compares_with_what_was_paid",
        ),
    ),
    Evidence(
        "The seal",
        "a reserved run copied and given other data; a measurement exchanged; keys on disk and in memory",
        "differences are distributed as independent noise; refused; overwritten and gone",
        (
            *_of(
                "releases",
                "test_attacks::test_the_difference_of_two_copies_of_a_reserved_folder_has_the_law_of_independent_noise",
                "test_of_two_copies_of_a_reserved_folder_only_the_same_input_is_taken_up",
                "test_payment::test_an_exchanged_measurement_is_refused",
                "test_no_key_of_a_run_outlives_the_seal_in_memory",
                "test_a_private_release_pays_seals_and_forgets_its_key",
            ),
            *_of("privacy", "test_private_files::test_a_run_is_bound_to_one_input"),
        ),
    ),
    Evidence(
        "The fingerprint",
        "data renamed, changed, or in another private folder; guesses without the ledger's key",
        "refused until a word is given; another key gives another digest",
        (
            *_of(
                "releases",
                "test_attacks::test_known_data_under_a_new_name_need_a_word",
                "test_changed_data_under_known_questions_need_a_word",
                "test_the_same_data_are_known_in_another_private_folder_of_one_ledger",
            ),
            *_of("privacy", "test_ledger::test_a_fingerprint_needs_the_ledgers_key_and_tells_tables_apart"),
        ),
    ),
    Evidence(
        "Private records",
        "row counts, timings, names and paths in public files; modes of private ones under any umask; a private folder "
        "within the published one, or around it, by names, links and relative paths",
        "none; 0700 and 0600; refused",
        (
            *_of(
                "releases",
                "test_release::test_what_is_private_stays_in_the_private_record",
                "test_tables::test_no_count_of_the_private_table_is_public",
                "test_attacks::test_no_private_name_is_public",
                "test_all_that_is_private_is_its_owners_alone_under_any_umask",
            ),
            "tests/test_config.py::test_what_is_private_lies_apart_from_what_is_published",
        ),
    ),
    Evidence(
        "What does not fit in memory",
        "100,000 planted entities, and tables of persons, values and sizes, counted with 20 to 24 MB for the database: "
        "what lies where meanwhile, and after success, refusals, a full disk and kill -9",
        "rows spilled into a folder of mode 0700, none left",
        _of(
            "files",
            "test_spill::test_what_does_not_fit_is_counted_all_the_same",
            "test_refusals_name_the_row_and_leave_nothing",
            "test_a_full_disk_is_said",
            "test_what_a_killed_process_left_is_removed_by_the_next",
            "test_who_is_at_work_keeps_their_folder",
        ),
    ),
    Evidence(
        "Workers",
        "parts of a measurement drawn in any order, twice, by files, after a failure, and cut otherwise; an error with "
        "a private value; every file handed to workers read; addresses open to others",
        "the same bits, one payment; no key in a file, no value in an error, nothing left",
        _of(
            "releases",
            "test_divided::test_every_executor_order_and_repetition_seals_the_same_bytes",
            "test_other_parts_hold_the_same_answers",
            "test_blocks_hold_every_answer_once",
            "test_a_run_whose_workers_failed_goes_on_with_the_same_noise",
            "test_a_cluster_open_to_others_draws_no_private_answer",
            "test_noise_that_is_read_from_its_start_is_not_divided",
        ),
    ),
    Evidence(
        "Temporary storage",
        "a large seeded measurement while it is released, also stopped for memory or manually; arrays of all types "
        "and sizes, with room and without",
        "in a folder of mode 0700, gone afterwards; files without a name",
        (
            *_of(
                "releases",
                "test_seeded_temporary_storage::test_it_is_read_from_its_file_and_gives_the_same_bytes",
                "test_it_is_gone_and_was_its_owners_alone_when_a_release_is_stopped",
            ),
            *_of(
                "execution",
                "test_executors::test_arrays_come_back_as_they_were",
                "test_small_ones_and_those_without_room_stay_in_memory",
            ),
        ),
    ),
    Evidence(
        "Messages",
        "1,000 strings planted in the private table of each kind, sought in every file and all output after success, "
        "eleven kinds of errors and kill -9",
        "none found",
        _of(
            "releases",
            "test_canaries::test_none_is_found_after_success",
            "test_none_is_found_after_an_error",
            "test_none_is_found_after_kill_9",
        ),
    ),
)


def promises() -> tuple[str, ...]:
    """Return the names of the promises of SECURITY.md, in its order."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    return tuple(_PROMISE.findall(text.partition("## What it promises")[2].partition("\n## ")[0]))


@cache
def defined(file: str) -> frozenset[str]:
    """Return the names of a file's tests."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef))


def markdown() -> str:
    """Return the table of the documentation."""
    lines = ["| promise | what tries it | what is seen | planted faults | tests |", "| --- | --- | --- | --- | --- |"]
    before = ""
    for row in ROWS:
        files: dict[str, list[str]] = {}
        for node in row.tests:
            files.setdefault(node.partition("::")[0], []).append(node.partition("::")[2])
        named = "; ".join(f"`{file}`: " + ", ".join(f"`{name}`" for name in names) for file, names in files.items())
        promise = f"**{row.promise}**" if row.promise != before else ""
        lines.append(f"| {promise} | {row.attack} | {row.figure} | {row.faults or ''} | {named} |")
        before = row.promise
    total = f"{len(MUTANTS)} faults are planted in the package in all, each noticed by the test named for it."
    return "\n".join([*lines, "", f"{total} `make mutants` plants them one by one."])


def run() -> int:
    """Run the tests of every row and print a line each; 1 where some fail."""
    failed = 0
    for row in ROWS:
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *row.tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        last = (done.stdout.strip().splitlines() or ["nothing was run"])[-1]
        failed += done.returncode != 0
        sys.stdout.write(
            f"{'holds' if done.returncode == 0 else 'FAILS'}  {row.promise}: {row.attack}\n       {last}\n"
        )
        sys.stdout.flush()
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--run"]:
        sys.exit(run())
    sys.stdout.write(markdown() + "\n")
