"""Strict lists of tests/odd/test_odd_inputs.py, by reason.

SILENT: nothing in the messages tells, so only `prove` does. NOTED: no message tells either, but the run and `status`
say of the table that it may differ; its verdict stays, since as a rule it does not. ORDINARY: sound, and mirrored.
"""

SILENT = {
    "NULL or absent, and the event contradicts itself": """
        q_update_mask_left_out q_update_mask_null_column_null
        ct_empty_unquoted_text ct_update_null_not_in_mask_no_before
    """,
    "a key changed and nothing tells it": """
        ct_key_text_case_untold
    """,
}

NOTED = {
    "rows that were there have a default, or what became of them, and no change says so": """
        c_added_with_default c_added_with_default_same_tick c_dropped_and_added_with_other_meaning
        c_retyped_rounds_in_place c_retyped_to_varchar q_column_added_with_default ct_column_added_with_default
        l_column_missing_in_export w_columns_listed_later_more l_type_milliseconds
    """,
    "rows that are alike in all but their keys took each other's, and nothing tells that there are two": """
        l_keys_exchanged_alike
    """,
    "a key changed, and its update has no old values and names the new key only": """
        k_changed_untold
    """,
    "the table goes on under another name, or never comes": """
        q_never_seen ct_folder_missing w_nothing_ever
    """,
    "the stream was there before it was read, and the table has no initial load": """
        w_capture_first_is_missing
    """,
}

ORDINARY = """
    v_bigint_number v_float_forms v_real_forms v_int_forms v_money v_dt2_digits v_offset v_date v_guid v_bit
    v_varbinary v_char_pad v_text_words v_text_number v_varchar_bytes r_update_lacks_column_complete
    r_partial_completed r_delete_by_pkkey r_delete_old_lacks_key r_delete_and_again_in_one_transaction
    r_insert_and_delete_in_one_transaction r_delete_before_insert r_out_of_order_over_files r_doubled
    r_doubled_other_spelling r_one_place_two_rows r_same_id_two_events k_pkkey_in_other_order k_swapped k_moved_and_back
    k_moved_and_back_in_one_transaction_late k_chain_in_one_transaction k_chain_from_below k_swapped_alike
    k_swapped_alike_late k_moved_alike_and_back k_chain_alike_from_below q_key_swap_alike ct_key_swap_alike
    k_taken_from_a_deleted_row k_taken_from_a_deleted_row_alike_late k_inserted_over_a_deleted_row
    k_moved_and_deleted_in_one_transaction k_text_case_changed
    k_text_blank_added k_text_normal_form_changed k_decimal_spellings k_guid_case k_binary_spellings
    k_float_minus_zero k_datetime_spellings k_offset_same_instant k_time_spellings k_empty_text c_reordered
    n_other_schema n_database_in_other_case m_content_type_null m_content_type_left_out m_content_type_charset
    m_segment_and_split m_source_other m_extension m_data_object m_data_base64 m_data_camel m_data_eventdata
    m_pkkey_null m_pkkey_value_null m_transaction_null m_transaction_lsn_lower m_lsn_lower_everywhere
    m_guid_in_capitals m_generation_a m_avro m_avro_confluent p_over_ticks p_base_one p_doubled p_cut_in_character
    p_generation_a f_bom_crlf f_no_last_newline f_gz_two_members f_other_ending_json f_other_ending_ndjson
    f_other_ending_capitals f_twice_two_names f_grows f_written_over_with_the_same
    f_packed_written_anew f_zero_bytes f_offset_twice f_folder_below f_hidden_beside_its_own zz_heartbeat
    f_renamed q_v_real8 q_v_boolean q_v_bytes q_v_datetime q_v_text q_v_text_number q_v_text_longer_than_said
    q_v_uint8 q_mask_padded q_delete_in_before q_delete_only_key q_before_left_out q_doubled_and_replayed q_late
    q_delete_and_insert_in_transaction q_key_change q_key_change_mask_denies q_key_text_case q_key_text_blank
    q_key_datetime q_h_counter_null q_h_counter_left_out q_h_transaction_null q_h_timestamp_empty q_h_extra
    q_metadata_late q_metadata_no_key q_old_message_after_new_metadata q_refresh_then_changes
    q_refresh_twice_other_values q_refresh_repeated_behind_change q_refresh_with_sequence q_message_as_text
    q_without_envelope_named q_without_envelope_named_outside q_other_schema_same_name q_column_names_like_sections
    q_avro_plain q_file_twice_two_names q_zz_heartbeat ct_v_int8 ct_v_int_json_number ct_v_numeric ct_v_real8
    ct_v_boolean ct_v_bytes ct_v_datetime ct_v_text ct_v_text_json ct_v_text_parquet ct_v_text_unquoted_nul
    ct_null_value_is_text ct_empty_unquoted_text_with_other_null ct_plain ct_plain_json ct_plain_parquet
    ct_key_change_before_in_next_file ct_key_change_before_follows_in_next_file ct_key_swap ct_timestamp_epoch
    ct_doubled ct_late ct_delete_only_key ct_key_text_blank ct_key_datetime ct_key_decimal ct_dfm_in_capitals
    ct_folder_without_schema ct_folder_of_partition ct_bom_crlf ct_header_line_missing ct_other_delimiter
    ct_header_line_missing_value_is_a_name
    ct_packed_two_members ct_delivered_twice_two_names ct_file_earlier_than_read_ones ct_ending_csv_in_capitals
    ct_column_with_header_prefix ct_mask_deselected ct_zz_heartbeat ct_file_grows ct_file_replaced l_sound
    l_column_never_streamed_delete_only l_key_blank_and_case l_key_datetime_nanoseconds l_type_nanoseconds
    l_type_decimal_for_money l_type_dictionary_text l_value_texts l_empty l_parts_of_two_orders
    l_key_changed_while_loading l_deleted_while_loading l_csv_sound l_csv_text_null l_csv_bom_crlf
    l_marks_beside_parts v_float_zeros
    r_json_more_members l_only_deleted_sound l_type_moment_in_utc l_value_offset_int96
    ct_v_text_json_true ct_held_short_numeric_as_double ct_held_numeric_as_decimal ct_held_boolean
    ct_held_text_as_bytes l_csv_header_reordered l_csv_only_header l_csv_nul l_csv_trailing_blank w_capture_in_capitals
    ct_folder_of_another_suffix_beside l_key_char_filled l_stream_from_reached q_reload_whole_over_ticks
    q_refresh_single_row_doubled k_wider_promised q_wider_key_promised ct_key_wider_promised
    q_key_change_mask_of_two_orders_before q_mask_of_one_order ct_full_load_empty ct_update_of_large_object_mask_zero
    ct_task_unnamed ct_v_uint8 ct_held_int_as_double q_avro_double_for_short_numeric q_avro_text_for_bytes
    k_moved_twice_with_unreadable_image k_moved_twice_with_lacking_image k_moved_with_unreadable_image
    k_swapped_with_unreadable_images l_time_texts_of_the_stream l_keys_exchanged l_keys_exchanged_by_way_of_a_third
    q_key_swap_without_values ct_key_swap_without_values q_key_change_behind_insert_old_key_alone
    ct_key_change_behind_insert_old_key_alone ct_key_change_behind_insert_old_large_object_null
"""
