//! What two sequences have in common, as a search for pairs needs it. Any pairing that is proved will do.

use std::collections::HashMap;

/// Comparisons up to which a longest common subsequence is looked for.
const EXACT: usize = 1_000_000;

/// Pairs of positions of a longest common subsequence, in order.
///
/// Beyond `EXACT` comparisons long runs are matched greedily (difflib), which may pair a row of equal instructions with the
/// wrong partners.
pub fn common_subsequence(left: &[u32], right: &[u32]) -> Vec<(usize, usize)> {
    if left == right {
        return (0..left.len()).map(|n| (n, n)).collect();
    }
    let start = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let (a, b) = (&left[start..], &right[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    let middle = if a.len() * b.len() <= EXACT { longest(a, b) } else { runs(a, b) };
    let head = (0..start).map(|n| (n, n));
    let tail = (1..=end).rev().map(|n| (left.len() - n, right.len() - n));
    head.chain(middle.into_iter().map(|(x, y)| (start + x, start + y))).chain(tail).collect()
}

/// By dynamic programming over the suffixes.
fn longest(left: &[u32], right: &[u32]) -> Vec<(usize, usize)> {
    let width = right.len() + 1;
    let mut best = vec![0_u32; (left.len() + 1) * width];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            let (here, below) = (i * width + j, (i + 1) * width + j);
            best[here] = if left[i] == right[j] { best[below + 1] + 1 } else { best[below].max(best[here + 1]) };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < left.len() && j < right.len() {
        if left[i] == right[j] {
            pairs.push((i, j));
            i += 1;
            j += 1;
        } else if best[(i + 1) * width + j] >= best[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// The longest run that both have, and likewise before and behind it (Ratcliff and Obershelp, as in Python's difflib).
fn runs(left: &[u32], right: &[u32]) -> Vec<(usize, usize)> {
    let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
    right.iter().enumerate().for_each(|(n, key)| places.entry(*key).or_default().push(n));
    let (mut pending, mut pairs) = (vec![(0, left.len(), 0, right.len())], Vec::new());
    while let Some((a, a_end, b, b_end)) = pending.pop() {
        let (mut i, mut j, mut length) = (a, b, 0);
        let mut ending: HashMap<usize, usize> = HashMap::new();
        for (x, key) in left.iter().enumerate().take(a_end).skip(a) {
            let mut next = HashMap::new();
            for y in places.get(key).into_iter().flatten().copied().filter(|y| (b..b_end).contains(y)) {
                let run = y.checked_sub(1).and_then(|before| ending.get(&before)).map_or(1, |run| run + 1);
                next.insert(y, run);
                if run > length {
                    (i, j, length) = (x + 1 - run, y + 1 - run, run);
                }
            }
            ending = next;
        }
        if length > 0 {
            pairs.extend((0..length).map(|n| (i + n, j + n)));
            pending.push((a, i, b, j));
            pending.push((i + length, a_end, j + length, b_end));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// As many of the pairs as can stand in order, each instruction once (patience sorting).
pub fn increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut ordered = pairs.to_vec();
    ordered.sort_unstable_by_key(|(a, b)| (*a, std::cmp::Reverse(*b)));
    let (mut tails, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (n, (_, b)) in ordered.iter().enumerate() {
        let low = tails.partition_point(|tail| ordered[*tail].1 < *b);
        before.push(low.checked_sub(1).map(|last| tails[last]));
        match tails.get_mut(low) {
            Some(tail) => *tail = n,
            None => tails.push(n),
        }
    }
    let (mut found, mut at) = (Vec::new(), tails.last().copied());
    while let Some(n) = at {
        found.push(ordered[n]);
        at = before[n];
    }
    found.reverse();
    found
}
